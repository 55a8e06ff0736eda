"""Where the door is on NATS, and as whom it lets callers in."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from cadre.errors import SettingError
from cadre.protocol.nats_addresses import addresses
from cadre.settings import read

_OWNER = re.compile(r"[a-z0-9_-]{1,63}")


class SynadiaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`CADRE_SYNADIA_<FIELD>`."""

    url: str = ""
    """The NATS server; "" for that of the deployment."""
    credentials: str = ""
    """The file of a NATS user's key; "" for none where `url` is set, else the gateway's own."""
    owner: str = ""
    """The word for this deployment in its subjects; "" for its prefix."""
    key: str = ""
    """The API key whose rights callers on NATS have."""
    trust: Literal["any", "signed"] = "any"
    """`signed`: only prompts that are signed with a NATS user's key are taken."""
    prompts: Annotated[int, msgspec.Meta(ge=1)] = 100
    """Prompts to one agent that are answered at once."""

    def __post_init__(self) -> None:
        if self.url:
            addresses(self.url)
        if self.owner and not _OWNER.fullmatch(self.owner):
            raise SettingError(
                f"CADRE_SYNADIA_OWNER={self.owner!r}: use 1 to 63 of a-z, 0-9, '_' and '-' (it is in NATS subjects)"
            )


def read_synadia_settings() -> SynadiaSettings:
    """The settings of this gateway. Raises SettingError."""
    return read(SynadiaSettings, "CADRE_SYNADIA_")
