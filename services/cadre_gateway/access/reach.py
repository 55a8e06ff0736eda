"""Which runs and sessions a caller reaches."""

from __future__ import annotations

from cadre.adapters.nats.sessions import NatsSessions
from cadre.protocol.topology import parent_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.access.rules import Scope
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of
from cadre_gateway.requests.problems import Problem


async def reaches(lookup: RunLookup, caller: Principal, run: str, scope: Scope) -> bool:
    """Whether the caller reaches the run, with the scope `run` also by an agent above it. Raises a 404 problem,
    RetryableError."""
    root = await lookup.find(checked_tree_of(run))
    if caller.reaches_tree(root):
        return True
    if scope != "run" or not caller.agents or (caller.own and root.user != caller.user):
        return False
    above: str | None = run
    while above is not None:
        if (await lookup.find(above)).agent in caller.agents:
            return True
        above = parent_of(above)
    return False


async def check_session(
    lookup: RunLookup, turns: NatsSessions, caller: Principal, agent: str, session: str
) -> None:
    """Raises a 403 problem for a session of somebody else, whose memory a run would go on with."""
    if not caller.own:
        return
    turn, _ = await turns.read(agent, session)
    for run in (turn.run, turn.previous) if turn is not None else ():
        try:
            known = run is None or caller.reaches_tree(await lookup.find(run))
        except Problem:
            continue  # it is gone, and its memory with it
        if not known:
            raise Problem(403, "out-of-scope", f"session {session!r} is somebody else's")
