"""API keys: made, listed, revoked, and found by their tokens."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import Annotated, Literal

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.api.access import KeyView, MadeKey
from cadre.errors import SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.access import ApiKey, RoleName
from cadre.recent import Recent
from cadre.spec.durations import Length
from cadre.spec.names import check_name
from cadre_gateway.access.oidc_sessions import SessionRenewal, seal
from cadre_gateway.access.principal import OF_PROVIDER, Principal, caller_with
from cadre_gateway.requests.body import after, check_length
from cadre_gateway.requests.problems import Problem, invalid

FRESH_SECONDS = 5.0
"""So long a key counts at a gateway after another one has revoked it."""

_MISS_SECONDS = 0.5
"""A key that is not known is looked for in NATS, however many requests bring such keys, no more often than this."""

OF_SETTINGS = "settings"
"""Stands for the id of the key that the gateway's own settings name."""

SIGN_IN_SECONDS = 12 * 3600.0
"""Seconds that a browser stays signed in."""

_OF_SETTINGS = Principal(name="admin", key=OF_SETTINGS, roles=frozenset({"admin"}))
_TOKEN = re.compile(r"cadre_([0-9a-f]{12})_[0-9a-f]{64}")
_MAX_NAME_CHARS = 200
_MAX_MISSED = 1000


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/keys."""

    name: str
    roles: Annotated[list[RoleName], msgspec.Meta(min_length=1)]
    user: str = ""
    """The person whose key it is: it starts runs in their name, and decides in it."""
    own: bool = False
    """True if it reaches that person's runs and memories alone."""
    agents: list[str] = []
    """Only runs of these agents, and what is below them."""
    teams: list[str] = []
    """Only trees that begin with these agents."""
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Requests a second."""
    runs_per_day: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    expires_in: Length | None = None
    """The time from now for which the key counts, in seconds or as `12h` or `90d`; without it, until it is revoked."""

    def __post_init__(self) -> None:
        check_length("expires_in", self.expires_in)

    def check(self) -> None:
        """Raise a 422 problem."""
        for what, text in (("name", self.name), ("user", self.user or "-")):
            if not (0 < len(text.strip()) <= _MAX_NAME_CHARS and text.isprintable()):
                raise invalid(f"{what}: write 1 to {_MAX_NAME_CHARS} printable characters")
        if self.own and not self.user:
            raise invalid("own: say whose runs and memories, by `user`")
        try:
            for name in (*self.agents, *self.teams):
                check_name("agent", name)
        except SpecError as error:
            raise invalid(f"agents, teams: {error}") from error


@dataclass
class ApiKeys:
    """The keys of a deployment. Every method raises RetryableError."""

    definitions: NatsDefinitions[ApiKey]
    clock: Clock
    admin_key: str = ""
    """A token that is an administrator's, from the gateway's own settings; "" for none."""
    accepted: bool = True
    """True if keys count; else nothing does but what a provider vouches for."""
    renewal: SessionRenewal | None = None
    """Asks the provider that people sign in by whether it still vouches for them; None without one."""
    _known: dict[str, ApiKey] = field(default_factory=dict)
    _missed: Recent[str, float] = field(default_factory=lambda: Recent(_MAX_MISSED))
    """Ids that were looked for in NATS, and when: no key has the id of a former one."""
    _read_at: float = -FRESH_SECONDS
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def caller(self, token: str) -> Principal | None:
        """Return the caller with this token; None if the token is not valid (any more). Raises a 403 problem for a
        person to whom the provider grants nothing any more."""
        if self.accepted and self.admin_key and hmac.compare_digest(token.encode(), self.admin_key.encode()):
            return _OF_SETTINGS
        shape = _TOKEN.fullmatch(token)
        if shape is None:
            return None
        key = await self._find(shape[1])
        if key is None or not hmac.compare_digest(_digest(token), key.digest) or not self._counts(key):
            return None
        if self.renewal is not None and self.renewal.is_due(key):
            key = await self.renewal.renew(key, token)
            if key is None:
                self._known.pop(shape[1], None)
                return None
            self._known[key.id] = key
        return caller_with(key)

    async def holder(self, identity: str) -> Principal | Literal["revoked", "expired"]:
        """Return who has the key with this id, which may be OF_SETTINGS, with the rights of this moment; else why
        there is no such person."""
        if identity == OF_SETTINGS:
            return _OF_SETTINGS if self.accepted and self.admin_key else "revoked"
        key = await self._find(identity)
        if key is None or not self.accepted:
            return "revoked"
        return caller_with(key) if self._counts(key) else "expired"

    async def make(self, wanted: KeyBody, by: str) -> MadeKey:
        """Make a key and return it with its token, which cannot be read again. Raises a 422 problem."""
        wanted.check()
        if not self.accepted:
            raise invalid("no keys count here, only what the provider vouches for: CADRE_AUTH=keys,oidc takes both")
        now = self.clock.now()
        fields = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "expires_in"}
        expires_at = after("expires_in", wanted.expires_in, now)
        return await self._store(fields, by, expires_at)

    async def sign_in(self, caller: Principal, refresh: str = "") -> MadeKey:
        """Make the short-lived key that a browser keeps as its cookie; it may what the caller may, and no longer. With
        the refresh token of a provider it is renewed until its end."""
        now = self.clock.now()
        for one in [key for key in self._known.values() if key.parent and not self._counts(key)]:
            await self.definitions.remove(one.id)
            self._known.pop(one.id, None)
        fields = {
            **msgspec.to_builtins(caller.identity()),
            "rate": caller.rate,
            "runs_per_day": caller.runs_per_day,
            "parent": caller.key,
        }
        until = now + SIGN_IN_SECONDS
        ends = until if caller.expires_at is None else min(until, caller.expires_at)
        if refresh:
            fields["renew_at"], ends = ends, until
        return await self._store(fields, caller.name, ends, refresh)

    async def sign_out(self, token: str) -> None:
        """End the sign-in with this token, if there is one."""
        caller = await self.caller(token)
        if caller is not None and (key := self._known.get(caller.key)) is not None and key.parent:
            await self.revoke(caller.key)

    async def list(self) -> list[KeyView]:
        """Return all keys, oldest first, without sign-ins by browsers."""
        await self._read(0.0)
        keys = sorted(self._known.values(), key=lambda key: key.made_at)
        return [_view(key) for key in keys if not key.parent]

    async def revoke(self, key: str) -> KeyView:
        """End a key and what was signed in with it: here at once, elsewhere within FRESH_SECONDS. Raises a 404
        problem."""
        await self._read(0.0)
        found = self._known.get(key)
        if found is None or not await self.definitions.remove(key):
            raise Problem(404, "unknown-key", f"there is no key {key!r}: GET /v1/keys lists them")
        for one in [key, *(one.id for one in self._known.values() if one.parent == key)]:
            await self.definitions.remove(one)
            self._known.pop(one, None)
        return _view(found)

    def _counts(self, key: ApiKey) -> bool:
        """Return whether the key has not expired, and neither has the one that it was made with."""
        if key.expires_at is not None and key.expires_at <= self.clock.now():
            return False
        if key.parent.startswith(OF_PROVIDER):
            return self.renewal is not None
        if not self.accepted:
            return False
        if key.parent in ("", OF_SETTINGS if self.admin_key else ""):
            return True
        return key.parent in self._known and self._counts(self._known[key.parent])

    async def _store(self, fields: dict[str, object], by: str, expires_at: float | None, refresh: str = "") -> MadeKey:
        identity = secrets.token_hex(6)
        token = f"cadre_{identity}_{secrets.token_hex(32)}"
        about = {
            **fields,
            "id": identity,
            "made_at": self.clock.now(),
            "made_by": by,
            "expires_at": expires_at,
            "sealed": seal(refresh, token) if refresh else "",
        }
        key = msgspec.convert({**about, "digest": _digest(token)}, ApiKey)
        await self.definitions.write(identity, key, 0)
        self._known[identity] = key
        return MadeKey(**msgspec.structs.asdict(_view(key)), token=token)

    async def _find(self, identity: str) -> ApiKey | None:
        await self._read(FRESH_SECONDS)
        if identity not in self._known and time.monotonic() - self._missed.get(identity, -inf) > FRESH_SECONDS:
            # Another gateway may have made the key a moment ago: a person who has just signed in is not refused.
            await self._read(0.0, apart=_MISS_SECONDS)
            self._missed[identity] = time.monotonic()
        return self._known.get(identity)

    async def _read(self, within: float, apart: float = 0.0) -> None:
        """Has all keys as they were at most so many seconds ago; waits until `apart` seconds after the last reading."""
        asked = time.monotonic()
        if asked - self._read_at < within:
            return
        async with self._reading:
            # Somebody else has read them while this one waited.
            if self._read_at >= asked:
                return
            await asyncio.sleep(max(0.0, self._read_at + apart - time.monotonic()))
            began = time.monotonic()
            found = [one for one in await self.definitions.all() if not isinstance(one, UnreadableMessage)]
            self._known = {key.id: key for key in found}
            self._read_at = began


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _view(key: ApiKey) -> KeyView:
    return KeyView(**{name: getattr(key, name) for name in KeyView.__struct_fields__})
