"""Keep the signing keys of an OpenID Connect provider, and renew sign-ins when their last confirmation has expired.

What a renewal needs is encrypted with the token that only the browser has, so a stolen store lets no one in. A gateway
without a provider has the renewal of keys too, so nothing here needs PyJWT.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.oidc import OidcProvider, ProviderMetadata, TokenAnswer, TokenRefused
from cadre.errors import Fenced, ProviderUnavailable, RetryableError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.access import ApiKey
from cadre_gateway.access.principal import OF_PROVIDER
from cadre_gateway.requests.problems import Problem, answer_deadline

if TYPE_CHECKING:
    from cadre_gateway.access.oidc_tokens import ProviderTokens

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
    """The reason why the last question was not answered."""
    _asking: asyncio.Task[None] | None = None

    async def metadata(self) -> ProviderMetadata:
        """Return the provider's endpoints."""
        return await self._known(MAX_AGE_SECONDS)

    async def find(self, kid: str | None) -> Jwk | None:
        """Return the key of this id, or the only key for a token that names no id; None if the provider lacks it."""
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
            self._asking.done() and now - self._asked_at >= (within if self._failure is None else MISS_SECONDS)
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


_CLAIM_SECONDS = 10.0
"""A gateway that has not renewed a sign-in by then has failed: the next one does it."""

_POLL_SECONDS = 0.1

_NONCE_BYTES = 12


@dataclass
class SessionRenewal:
    """Sign-ins that a provider vouches for. Of all gateways one asks it: a refresh token may be good for one use."""

    definitions: NatsDefinitions[ApiKey]
    provider: OidcProvider
    tokens: ProviderTokens
    client_id: str
    clock: Clock

    def is_due(self, key: ApiKey) -> bool:
        """Return whether the provider must be asked before the sign-in counts again."""
        return key.renew_at is not None and key.renew_at <= self.clock.now()

    async def renew(self, key: ApiKey, token: str) -> ApiKey | None:
        """Return the sign-in as the provider now sees it; None once it has ended. Raises RetryableError, TimeoutError,
        and a 403 problem for a person to whom the provider grants nothing any more."""
        async with answer_deadline():
            while True:
                try:
                    stored, fence = await self.definitions.read(key.id)
                except UnreadableMessage:
                    return None
                # Any answer of the provider since this request came is recent enough for it.
                if stored is None or stored.renew_at != key.renew_at:
                    return stored
                until = self.clock.now() + _CLAIM_SECONDS
                if stored.renewing_until > self.clock.now():
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                try:
                    claimed = msgspec.structs.replace(stored, renewing_until=until)
                    fence = await self.definitions.write(key.id, claimed, fence)
                except Fenced:
                    continue
                return await self._ask(claimed, token, fence)

    async def _ask(self, key: ApiKey, token: str, fence: int) -> ApiKey | None:
        try:
            metadata = await self.tokens.keys.metadata()
            refresh = unseal(key.sealed, token)
            answer = await self.provider.tokens(metadata, grant_type="refresh_token", refresh_token=refresh)
            renewed = await self._renewed(key, answer, token)
        except (TokenRefused, ValueError):
            await self.definitions.remove(key.id)
            return None
        except Problem:
            await self.definitions.remove(key.id)
            raise
        except (RetryableError, TimeoutError):
            await self.definitions.write(key.id, msgspec.structs.replace(key, renewing_until=0.0), fence)
            raise
        try:
            await self.definitions.write(key.id, renewed, fence)
        except Fenced:
            return None  # it was signed out meanwhile
        return renewed

    async def _renewed(self, key: ApiKey, answer: TokenAnswer, token: str) -> ApiKey:
        sealed = seal(answer.refresh_token, token) if answer.refresh_token else key.sealed
        if not answer.id_token:  # the standard lets a provider leave it out
            until = self.clock.now() + max(answer.expires_in, 1.0)
            return msgspec.structs.replace(key, renew_at=until, renewing_until=0.0, sealed=sealed)
        who = self.tokens.principal_with(await self.tokens.claims(answer.id_token, self.client_id))
        if who.key != key.parent:
            raise ValueError(f"tokens of somebody else than {key.parent.removeprefix(OF_PROVIDER)}")
        return msgspec.structs.replace(
            key,
            roles=sorted(who.roles),
            user=who.user,
            own=who.own,
            agents=sorted(who.agents),
            teams=sorted(who.teams),
            rate=who.rate,
            runs_per_day=who.runs_per_day,
            renew_at=who.expires_at,
            renewing_until=0.0,
            sealed=sealed,
        )


def seal(secret: str, token: str) -> str:
    """Return the secret, which only `unseal` with the same token gives back."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return b64encode(nonce + AESGCM(_key(token)).encrypt(nonce, secret.encode(), None)).decode()


def unseal(sealed: str, token: str) -> str:
    """Return the secret. Raises ValueError if it was sealed with another token, or changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    data = b64decode(sealed)
    try:
        return AESGCM(_key(token)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None).decode()
    except InvalidTag as error:
        raise ValueError("sealed with another token") from error


def _key(token: str) -> bytes:
    # The token has 256 random bits; what is stored of it is a plain SHA-256, which says nothing about this key.
    return hmac.digest(token.encode(), b"cadre refresh token", sha256)
