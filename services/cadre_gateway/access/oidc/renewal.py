"""Renew sign-ins: ask the provider again when its last confirmation has expired.

What a renewal needs is encrypted with the token that only the browser has, so a stolen store lets no one in.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.oidc.provider import OidcProvider, TokenAnswer, TokenRefused
from cadre.errors import Fenced, RetryableError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.access import ApiKey
from cadre_gateway.access.principal import OF_PROVIDER
from cadre_gateway.requests.problems import Problem, answer_deadline

if TYPE_CHECKING:
    from cadre_gateway.access.oidc.tokens import ProviderTokens


_CLAIM_SECONDS = 10.0
"""A gateway that has not renewed a sign-in by then has died at it: the next one does."""

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
        """The sign-in as the provider now sees it; None where it is over. Raises RetryableError, TimeoutError, and a
        403 problem for whom it grants nothing any more."""
        async with answer_deadline():
            while True:
                try:
                    stored, fence = await self.definitions.read(key.id)
                except UnreadableMessage:
                    return None
                # Whatever the provider has said since this request came is news enough for it.
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
    """The secret, which only `unseal` with the same token gives back."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return b64encode(nonce + AESGCM(_key(token)).encrypt(nonce, secret.encode(), None)).decode()


def unseal(sealed: str, token: str) -> str:
    """The secret again. Raises ValueError where it was sealed with another token, or changed."""
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
