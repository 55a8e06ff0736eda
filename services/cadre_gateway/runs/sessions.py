"""Sessions: a run that goes on with the memory of the one before."""

from __future__ import annotations

import time

from cadre.adapters.nats.sessions import Turn
from cadre.errors import Fenced
from cadre.loop.fold import fold
from cadre.protocol.topology import tree_of
from cadre_gateway.desk import Desk
from cadre_gateway.requests.problems import Problem

_TRIES = 5

_YOUNG = 10.0
"""Seconds in which a recorded turn may be without its Task: its gateway is about to publish it."""


async def take_turn(desk: Desk, agent: str, session: str, run: str, reset: bool) -> str | None:
    """Makes `run` the session's last; returns the run whose memory it goes on from.

    Raises a 409 problem while the last one is still going (unless `reset`), RetryableError.
    """
    for _ in range(_TRIES):
        turn, fence = await desk.sessions.read(agent, session)
        if turn is not None and turn.run == run:
            last = turn.previous  # the same request, sent again
        else:
            last = await _last_run(desk, turn, session, reset) if turn else None
            try:
                await desk.sessions.record(
                    agent, session, Turn(run=run, previous=last, at=time.time()), fence
                )
            except Fenced:
                continue
        return None if reset else last
    raise _busy(session, "others keep starting runs in it")


async def _last_run(desk: Desk, turn: Turn, session: str, reset: bool) -> str | None:
    """The last run of the session that was ever started; a turn without one counts as never taken, and behind
    one that was erased the session begins afresh."""
    for run, at in ((turn.run, turn.at), (turn.previous, 0.0)):
        if run is None:
            continue
        if desk.ledger.is_erased(tree_of(run)):
            return None
        stored = await desk.platform.journal.read(tree_of(run), run)
        if stored:
            ended = fold((one.entry for one in stored), run, tree_of(run)).result is not None
            if not ended and not reset:
                raise _busy(session, f"its last run {run} is still going: wait for it or cancel it")
            return run
        young = time.time() - at < _YOUNG
        if not reset and (young or await desk.history.task(tree_of(run), run) is not None):
            raise _busy(session, f"its last run {run} is about to start: wait for it or cancel it")
    return None


def _busy(session: str, why: str) -> Problem:
    return Problem(
        409,
        "session-busy",
        f"session {session!r}: {why}, or start afresh (reset=true; `cadre run` without --continue)",
    )
