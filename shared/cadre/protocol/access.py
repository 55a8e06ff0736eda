"""API keys as NATS keeps them: who may do what at the gateway, without anything that would give access."""

from typing import Literal, get_args

import msgspec

RoleName = Literal["viewer", "operator", "approver", "admin"]

Right = Literal["public", "read", "act", "decide", "administer"]
"""The right that a route needs, and the rights that a role gives."""

ROLE_NAMES: tuple[RoleName, ...] = get_args(RoleName)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action at a gateway, and who did it. Times are Unix seconds."""

    at: float
    action: str
    """Such as `run.cancel`."""
    who: str
    """The person, else the name of the key; without authentication, the name that the client gave."""
    key: str = ""
    """Id of their key; "" without authentication."""
    target: str = ""
    """The run, call, key, memory or definition that it was done to."""
    status: int
    """The HTTP status that it was answered with: from 400 on nothing was done."""
    source: str = ""
    """The address that the request came from."""
    gateway: str = ""
    """The replica that was asked."""
    detail: dict[str, str] = {}
    """The other details: never a secret, a task or an argument."""


class Rights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rights that a provider's word gave a person, as the fields of the same names of an API key."""

    roles: list[RoleName]
    user: str
    own: bool = False
    agents: list[str] = []
    teams: list[str] = []
    rate: float | None = None
    runs_per_day: int | None = None


class Maker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The maker of a schedule or a trigger: its runs start with the maker's rights."""

    name: str = ""
    key: str = ""
    """Id of their API key, or what stands for it; "" where the gateway asked for no key."""
    vouched: Rights | None = None
    """The rights that a provider's word gave them when they made it; None where they have an API key."""


NO_MAKER = Maker()
"""The maker of what was made where no key is asked for."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key; times are Unix seconds."""

    id: str
    name: str
    digest: str
    """SHA-256 of the whole token in hexadecimal. The token has 256 random bits: no list of likely tokens finds it, and
    a slow hash would protect nothing more."""
    roles: list[RoleName]
    user: str = ""
    """The person whose key it is: their runs bear the name, and so do their decisions. "" for a program's."""
    own: bool = False
    """True if it reaches the runs and memories of `user` alone."""
    agents: list[str] = []
    """Only runs of these agents, and what is below them."""
    teams: list[str] = []
    """Only trees that begin with these agents; with both lists empty, all."""
    rate: float | None = None
    """Requests a second; None: the gateway's own bound."""
    runs_per_day: int | None = None
    """Runs that it may start in a day; None: as many as there is room for."""
    made_at: float
    made_by: str = ""
    expires_at: float | None = None
    parent: str = ""
    """Of a sign-in with a browser: the key that it was made with, without which it is nothing; `oidc:` and a subject
    when a provider has vouched for it."""
    renew_at: float | None = None
    """Of a sign-in by a provider: when the provider is asked whether it still holds."""
    renewing_until: float = 0.0
    """Until when the gateway that asks has the time to; the others wait for it."""
    sealed: str = ""
    """The refresh token of such a sign-in, encrypted with the token of the sign-in itself, which is kept nowhere."""
