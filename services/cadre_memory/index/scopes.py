"""Decides who may see, write and forget which memories, without any I/O. Nothing else decides that.

Every clause names a scope and its owner together, so no memory is reached by its owner alone. What a caller lacks
(a session, a person, a team) opens nothing: reading leaves that scope out, and writing goes to the run's own tree
instead.
"""

from typing import get_args

import msgspec

from cadre.errors import MemoryRefused, UnreadableMessage
from cadre.protocol.memory import Selection
from cadre.protocol.messages import MemoryScope, Origin, ToolCall
from cadre.protocol.topology import Address, parent_of, tree_of
from cadre_memory.index.vector_index import OWNER, OWNER_OF, Clause, Within
from cadre_memory.index.vector_index import owner as stored_owner

SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and the person it acts for: taken from the bus, completed by the call's origin."""

    agent: str
    tree: str
    run: str
    call: str
    step: int
    origin: Origin = Origin()

    def owner(self, scope: MemoryScope) -> tuple[str, str] | None:
        """Return the field and value that make a memory of the scope this caller's; None without an owner."""
        field = OWNER_OF[scope]
        value = getattr(self if field in ("tree", "agent") else self.origin, field)
        return (field, value) if value else None


def caller_of(call: ToolCall, address: Address) -> Caller:
    """Return who made a call that came by a subject of this address, which alone says who sent it.

    Raises UnreadableMessage when the call says anything else.
    """
    _, tool, sender, tree, leaf, _ = address
    if (call.tool, call.tree, call.id) != (tool, tree, leaf):
        raise UnreadableMessage(f"call {call.id!r} of {call.tool!r} in the place of {leaf!r} of {tool!r}")
    if call.agent != sender:
        raise UnreadableMessage(f"{sender!r} calls in the name of {call.agent!r}")
    if tree_of(call.run) != tree or parent_of(call.id) != call.run:
        raise UnreadableMessage(f"call {call.id!r} does not belong to run {call.run!r} in tree {tree!r}")
    return Caller(
        agent=sender,
        tree=tree,
        run=call.run,
        call=call.id,
        step=_step(call.id),
        origin=call.origin or Origin(),
    )


def reading(caller: Caller, at: float) -> Within:
    """Return what the caller may recall: the scopes that its origin names, as far as it has an owner for them."""
    return Within(any_of=_clauses(caller, list(caller.origin.reads)), at=at)


def writing(caller: Caller) -> MemoryScope:
    """Return the scope of what the caller remembers: `run` when it has no owner for the one that it asks for."""
    wanted = caller.origin.writes
    return wanted if caller.owner(wanted) is not None else "run"


def forgetting(caller: Caller) -> Within:
    """Return what the caller may remove: what it could have written, expired memories too."""
    return Within(any_of=_clauses(caller, list(dict.fromkeys(["run", writing(caller)]))))


def of_tree(tree: str) -> Within:
    """Return the memories that end with their tree of runs."""
    return Within(any_of=[Clause({"scope": "run", "tree": tree})])


def everything(at: float | None = None) -> Within:
    """Return every memory, for the service's own housekeeping."""
    return Within(any_of=[Clause({"scope": scope}) for scope in SCOPES], at=at)


def selected(selection: Selection, at: float | None = None) -> Within:
    """Return what a person's request means. Raises MemoryRefused when it does not say whose memories those are."""
    given = {
        field: value
        for field in ("agent", "team", "user", "session")
        if (value := getattr(selection, field)) is not None
    }
    if selection.run is not None:
        given["run" if parent_of(selection.run) else "tree"] = selection.run
    empty = sorted(field for field, value in given.items() if not value)
    if empty:
        raise MemoryRefused(f"{empty[0]} is empty: give a name, or leave it out")
    if selection.all and given:
        raise MemoryRefused(f"`all` means everybody's: leave out {', '.join(sorted(given))}, or leave out `all`")
    if not (given or selection.all):
        raise MemoryRefused(
            "whose memories? Give agent, team, user, session or run, with a scope if you like; or all=true"
        )
    scopes = SCOPES if selection.scope is None else (selection.scope,)
    return Within(any_of=[Clause({"scope": scope, **given}) for scope in scopes], at=at)


def _clauses(caller: Caller, scopes: list[MemoryScope]) -> list[Clause]:
    clauses = []
    for scope in scopes:
        owner = caller.owner(scope)
        if owner is not None:
            field, value = owner
            own = {OWNER: _session_of(caller)} if scope == "session" else {}
            clauses.append(Clause({"scope": scope, field: value, **own}))
    return clauses


def _session_of(caller: Caller) -> str:
    """Return the owner of the caller's session. By its name alone it would be everybody's who knows that."""
    origin = caller.origin
    return stored_owner("session", origin.session or "", origin.user or "", origin.root or "")


def _step(call: str) -> int:
    """Return the step in a call's id, which is `<run>_<step>_<index>`."""
    step = call.split("_")[-2]
    return int(step) if step.isdecimal() else 0
