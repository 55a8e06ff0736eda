"""The caller of a request: their roles, and the runs and memories that they reach."""

from __future__ import annotations

import msgspec
from fastapi import Request

from cadre.api.access import Identity
from cadre.protocol.access import ApiKey, Right, Rights, RoleName
from cadre.protocol.memory import Selection
from cadre_gateway.index.run_filter import TreeReach
from cadre_gateway.requests.body import Submission
from cadre_gateway.requests.problems import Problem

RIGHTS: dict[RoleName, frozenset[Right]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "act"}),
    # Who starts a run is not the one who approves what it does, unless somebody gives a key both roles.
    "approver": frozenset({"read", "decide"}),
    "admin": frozenset({"read", "act", "decide", "administer"}),
}
"""The rights of each role."""


OF_PROVIDER = "oidc:"
"""Begins what stands for the id of a key where a provider vouches for somebody; their subject follows."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request."""

    name: str = ""
    """The person, else the name of the key; "" where callers are not asked who they are."""
    key: str = ""
    """Id of the key, or of what stands for it; "" where callers are not asked who they are."""
    account: str = ""
    """The account whose rate and quota it uses, if not the key's own: a new sign-in does not start with new ones."""
    roles: frozenset[RoleName]
    key_name: str = ""
    """Name of the key, which may be another one than that of the person."""
    user: str = ""
    own: bool = False
    agents: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    rate: float | None = None
    runs_per_day: int | None = None
    expires_at: float | None = None

    @property
    def owner(self) -> str:
        """Return the owner of the caller's Idempotency-Keys: the person, else the API key; "" without keys."""
        if self.user:
            return f"user {self.user}"
        return f"key {self.account or self.key}" if self.key else ""

    @property
    def titles(self) -> list[str]:
        """Return the names by which rules may refer to the caller: names and roles; [] where callers are not asked who
        they are."""
        return sorted({*self.roles, self.name, self.key_name} - {""}) if self.key else []

    @property
    def scoped(self) -> bool:
        """Return whether it reaches some agents only."""
        return bool(self.agents or self.teams)

    @property
    def sees_all(self) -> bool:
        """Return whether there is no run or memory that it does not reach."""
        return not (self.own or self.scoped)

    def may(self, right: Right) -> bool:
        """Return whether one of its roles may do this."""
        return right == "public" or any(right in RIGHTS[role] for role in self.roles)

    @property
    def reach(self) -> TreeReach:
        """The trees that it reaches."""
        return TreeReach(self.agents | self.teams if self.scoped else None, self.user if self.own else None)

    @property
    def names_users(self) -> bool:
        """Return whether it may start runs for any person: it is bound to no person, no agent and no team."""
        return not (self.user or self.scoped)

    def starts_for(self, agent: str, user: str | None) -> str | None:
        """Return the person for whom this caller starts a run of the agent, given `user`. Raises a 403 problem for a
        run that the caller may not start."""
        if not self.may("act"):
            raise Problem(403, "forbidden", "this key may not start runs: the roles operator and admin do")
        if self.scoped and agent not in self.agents | self.teams:
            raise Problem(403, "out-of-scope", f"this key may not start runs of agent {agent!r}")
        if self.names_users or user == self.user:
            return user
        if user is None:
            return self.user or None
        if not self.user:
            raise Problem(
                403,
                "out-of-scope",
                "this key is for some agents or teams and no person's: leave `user` out, or use that person's key",
            )
        raise Problem(403, "out-of-scope", f"this key is {self.user!r}'s: leave `user` out, or write that name")

    def submission(self, wanted: Submission) -> Submission:
        """Return the request for a run as this caller may make it. Raises a 403 problem."""
        return msgspec.structs.replace(wanted, user=self.starts_for(wanted.agent, wanted.user))

    def check_selection(self, selected: Selection) -> None:
        """Raise a 403 problem for memories that are not all the caller's own."""
        if self.scoped:
            raise Problem(403, "out-of-scope", "a key for some agents or teams does not reach memories")
        if self.own and selected.user != self.user:
            raise Problem(403, "out-of-scope", f"this key reaches memories of user={self.user} only: say so")

    def identity(self) -> Identity:
        """Return the caller as the API shows them."""
        return Identity(
            name=self.name,
            roles=sorted(self.roles),
            rights=sorted({right for role in self.roles for right in RIGHTS[role]}),
            user=self.user,
            own=self.own,
            agents=sorted(self.agents),
            teams=sorted(self.teams),
            expires_at=self.expires_at,
        )


ANYBODY = Principal(roles=frozenset({"admin"}))
"""The caller of a gateway that does not ask callers who they are."""

STRANGER = Principal(roles=frozenset())
"""The caller of a public route."""


def caller_with(key: ApiKey) -> Principal:
    """Return the caller who sends this key."""
    caller = caller_of_rights(key.user or key.name, key.id, key)
    return msgspec.structs.replace(caller, key_name=key.name, account=key.parent, expires_at=key.expires_at)


def caller_of_rights(name: str, key: str, rights: ApiKey | Rights) -> Principal:
    """Return the caller of this name and key who has these rights."""
    return Principal(
        name=name,
        key=key,
        roles=frozenset(rights.roles),
        user=rights.user,
        own=rights.own,
        agents=frozenset(rights.agents),
        teams=frozenset(rights.teams),
        rate=rights.rate,
        runs_per_day=rights.runs_per_day,
    )


def caller_of(request: Request) -> Principal:
    """Return who sent this request, as the gate has found."""
    found: Principal = request.state.caller
    return found
