"""The makers of schedules and triggers: noted when they make one, and asked for their present rights at each start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cadre.protocol.access import Maker, Rights
from cadre_gateway.access.api_keys import ApiKeys
from cadre_gateway.access.principal import ANYBODY, OF_PROVIDER, Principal, caller_of_rights

if TYPE_CHECKING:
    from cadre_gateway.access.oidc_tokens import ProviderTokens

MakerLoss = Literal["maker-unknown", "maker-revoked", "maker-expired", "maker-forbidden"]
"""The reason why the runs of a maker do not start any more."""


class MakerGone(Exception):
    """The maker has no rights any more, or not those that are needed; the text says what to do."""

    def __init__(self, code: MakerLoss, why: str) -> None:
        super().__init__(f"{why}: somebody who may start its runs has to write it again, or to resume it")
        self.code = code


def maker_of(caller: Principal) -> Maker:
    """Return the caller as the maker of a definition. A browser's sign-in stands for the key or the person that it
    was made with: the definition lasts longer than the sign-in does."""
    key, vouched = caller.account or caller.key, None
    if key.startswith(OF_PROVIDER):
        vouched = Rights(
            roles=sorted(caller.roles),
            user=caller.user,
            own=caller.own,
            agents=sorted(caller.agents),
            teams=sorted(caller.teams),
            rate=caller.rate,
            runs_per_day=caller.runs_per_day,
        )
    return Maker(name=caller.name, key=key, vouched=vouched)


@dataclass(frozen=True)
class Makers:
    """Finds the present rights of makers."""

    keys: ApiKeys | None
    """None: the gateway asks for no key."""
    tokens: ProviderTokens | None = None
    """Those of a provider; None where its word counts for nothing."""

    async def caller(self, maker: Maker) -> Principal:
        """Return the maker with the rights of this moment. Raises MakerGone, RetryableError."""
        if self.keys is None:
            return ANYBODY
        if not maker.key:
            raise MakerGone("maker-unknown", "it was made while the gateway asked for no key")
        if maker.vouched is not None:
            return self._vouched(maker, maker.vouched)
        match await self.keys.holder(maker.key):
            case "revoked":
                raise MakerGone("maker-revoked", f"the key of {maker.name}, who made it, was revoked")
            case "expired":
                raise MakerGone("maker-expired", f"the key of {maker.name}, who made it, has expired")
            case Principal() as caller:
                return caller

    def _vouched(self, maker: Maker, rights: Rights) -> Principal:
        if self.tokens is None or not self.tokens.grants(rights):
            raise MakerGone(
                "maker-revoked",
                f"what {maker.name}, who made it, was granted is not granted to anyone any more",
            )
        return caller_of_rights(maker.name, maker.key, rights)
