"""Remember a provider's signing keys and fetch them again no more often than the provider can bear."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cadre.adapters.oidc.provider import OidcProvider, ProviderMetadata
from cadre.errors import ProviderUnavailable

log = logging.getLogger("cadre.gateway")

MAX_AGE_SECONDS = 600.0
"""A key that the provider has withdrawn counts no longer than this."""

MISS_SECONDS = 5.0
"""The provider is asked no more often than this, however many tokens name keys that it does not have."""

STALE_SECONDS = 86_400.0
"""So long its last keys count while the provider does not answer."""

Jwk = dict[str, Any]


@dataclass
class SigningKeys:
    """The keys of a provider. Every method raises ProviderUnavailable."""

    provider: OidcProvider
    clock: Callable[[], float] = time.monotonic
    _metadata: ProviderMetadata | None = None
    _keys: list[Jwk] = field(default_factory=list)
    _read_at: float = 0.0
    _asked_at: float = float("-inf")
    _failure: ProviderUnavailable | None = None
    """Why the last question was not answered."""
    _asking: asyncio.Task[None] | None = None

    async def metadata(self) -> ProviderMetadata:
        """The provider's endpoints."""
        return await self._known(MAX_AGE_SECONDS)

    async def find(self, kid: str | None) -> Jwk | None:
        """The key of this id, or the only one there is for a token that names none; None when the provider has none."""
        await self._known(MAX_AGE_SECONDS)
        if (found := self._find(kid)) is None:
            await self._known(MISS_SECONDS, wait=True)
            if (found := self._find(kid)) is None and self._failure is not None:
                raise self._failure
        return found

    def _find(self, kid: str | None) -> Jwk | None:
        keys = [key for key in self._keys if key.get("use", "sig") == "sig"]
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.get("kid") == kid), None)

    async def _known(self, within: float, *, wait: bool = False) -> ProviderMetadata:
        """Return what was known at most so many seconds ago, or else at last. While the provider does not answer it
        is asked in the background: only who cannot do with what is known waits for it."""
        now = self.clock()
        if self._asking is None or (
            self._asking.done()
            and now - self._asked_at >= (within if self._failure is None else MISS_SECONDS)
        ):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(now))
        if wait or self._failure is None or self._usable(now) is None:
            await asyncio.shield(self._asking)
        if (found := self._usable(now)) is None:
            raise self._failure or ProviderUnavailable("the OpenID provider has not answered")
        return found

    def _usable(self, now: float) -> ProviderMetadata | None:
        return self._metadata if now - self._read_at <= STALE_SECONDS else None

    async def _ask(self, now: float) -> None:
        try:
            metadata = await self.provider.metadata()
            self._keys = await self.provider.keys(metadata)
            self._metadata, self._read_at, self._failure = metadata, now, None
        except ProviderUnavailable as error:
            log.warning("keys of the OpenID provider not read: %s", error)
            self._failure = error
