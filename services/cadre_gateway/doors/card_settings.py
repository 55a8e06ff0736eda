"""Settings for the cards of agents, which other programs read before they ask."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from cadre.errors import SettingError
from cadre.settings import read

KEY = "CADRE_A2A_KEY"
_URL = "CADRE_A2A_URL"


class CardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for cards, read from `CADRE_A2A_…`."""

    key: str = ""
    """Path of a private key in PEM: EC (P-256), Ed25519 or RSA. Cards are signed with it."""
    url: str = ""
    """The gateway's own address as clients know it, in place of the one that they have asked at."""


def read_card_settings() -> CardSettings:
    """Return this gateway's settings. Raises SettingError."""
    settings = read(CardSettings, "CADRE_A2A_")
    parts = urlsplit(settings.url)
    if settings.url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise SettingError(f"{_URL}={settings.url}: write http://HOST or https://HOST")
    if settings.key and not settings.url:
        # Who asks says at which host: a signature must not vouch for that.
        raise SettingError(f"{KEY} is set: set {_URL} to the address that signed cards are to name")
    return msgspec.structs.replace(settings, url=settings.url.rstrip("/"))
