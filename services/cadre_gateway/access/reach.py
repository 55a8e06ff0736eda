"""Decides what a caller reaches. Routes and doors hand in an id and the principal, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cadre.adapters.nats.memory import NatsMemory
from cadre.protocol.memory import ShowRequest
from cadre.protocol.topology import parent_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of
from cadre_gateway.requests.problems import Problem, answer_deadline, unknown_call, unknown_run

Kind = Literal["run", "tree", "call", "memory"]
"""The kind of thing that an id names: a run; the whole tree that a run is part of; a call that was held back, by its
tree; a memory. A blob needs no check: its name has 256 bits, which appear only in what its reader reaches."""

_NOT_FOUND = 404


class Owner(NamedTuple):
    """The owner of something: facts of a run's task and of the tasks above it."""

    user: str = ""
    """The person; "" for no particular person."""
    root: str = ""
    """The agent that the tree begins with; "" for what belongs to no tree."""
    agents: frozenset[str] = frozenset()
    """The agents of the run and of those above it, where a key for one of them is enough."""


def reaches(caller: Principal, owner: Owner) -> bool:
    """Return whether the caller reaches what belongs to this owner. Every other check asks this."""
    if caller.own and (not caller.user or owner.user != caller.user):
        return False
    if not caller.scoped:
        return True
    return owner.root in caller.agents | caller.teams or not owner.agents.isdisjoint(caller.agents)


def unknown_memory(memory: str) -> Problem:
    """Return the 404 problem of a memory that is not there."""
    return Problem(404, "unknown-memory", f"there is no memory {memory!r}")


_UNKNOWN = {"run": unknown_run, "tree": unknown_run, "call": unknown_call, "memory": unknown_memory}


@dataclass(frozen=True)
class CallerReach:
    """Checks what callers name."""

    lookup: RunLookup
    memory: NatsMemory

    async def check(self, caller: Principal, what: Kind, name: str) -> None:
        """Raise the 404 problem that a made-up id gets, unless the caller reaches what the id names; RetryableError.
        A caller who sees everything is not looked up: what reads the thing says that it is missing. The shards that an
        id speaks of are known from then on."""
        if what != "memory" and not await self.lookup.shards.knows(checked_tree_of(name)):
            raise _UNKNOWN[what](name)
        if caller.sees_all:
            return
        try:
            async with answer_deadline():
                owner = await self._owner(what, name)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            raise _UNKNOWN[what](name) from None
        if not reaches(caller, owner):
            raise _UNKNOWN[what](name)

    async def has(self, caller: Principal, what: Kind, name: str) -> bool:
        """Return whether `check` lets the caller pass. Raise RetryableError."""
        try:
            await self.check(caller, what, name)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            return False
        return True

    async def _owner(self, what: Kind, name: str) -> Owner:
        """Return the owner of what the id names. Raise a 404 problem, RetryableError."""
        if what == "memory":
            page = await self.memory.show(ShowRequest(memory=name))
            if not page.memories:
                raise unknown_memory(name)
            return Owner(user=page.memories[0].user)
        root = await self.lookup.find(checked_tree_of(name))
        agents = set[str]()
        above = name if what == "run" else None
        while above is not None:
            agents.add((await self.lookup.find(above)).agent)
            above = parent_of(above)
        return Owner(root.user or "", root.agent, frozenset(agents))
