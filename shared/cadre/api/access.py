"""API keys as the HTTP API shows them: never their tokens, but for the one time that a key is made."""

from __future__ import annotations

import msgspec

from cadre.protocol.access import AuditEntry, Right, RoleName


class KeyView(msgspec.Struct, kw_only=True):
    """One key, without what would let somebody in. Times are Unix seconds."""

    id: str
    name: str
    roles: list[RoleName]
    user: str = ""
    """The person whose key it is; "" for a program's."""
    own: bool = False
    """True if it reaches that person's runs and memories alone."""
    agents: list[str] = []
    teams: list[str] = []
    rate: float | None = None
    """Requests a second; null: the gateway's own bound."""
    runs_per_day: int | None = None
    made_at: float
    made_by: str = ""
    expires_at: float | None = None


class MadeKey(KeyView, kw_only=True):
    """A key that was made this moment."""

    token: str
    """The token that its owner sends as `Authorization: Bearer`: it is kept nowhere, and never shown again."""


class AuditView(AuditEntry, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    id: int
    """Its place there; `before` takes it."""


class Identity(msgspec.Struct, kw_only=True):
    """The caller, as the gateway identifies them."""

    name: str
    """The name of the key or of the person; "" if the gateway does not authenticate callers."""
    roles: list[RoleName]
    rights: list[Right] = []
    """The rights that the roles give."""
    user: str = ""
    own: bool = False
    agents: list[str] = []
    teams: list[str] = []
    expires_at: float | None = None


class SignInWays(msgspec.Struct, kw_only=True):
    """The ways in which people may sign in at a gateway."""

    keys: bool
    """True if an API key does; false for every way if the gateway does not authenticate callers."""
    provider: str = ""
    """The name by which people know the OpenID provider; "" without one."""
    login: str = ""
    """The path that leads to its page; `return_to` says where at the gateway to go on behind it."""
