"""Sessions: a run that goes on with the memory of the one before."""

from dataclasses import dataclass

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.engine.fold import fold
from cadre.errors import Fenced
from cadre.ports import Clock, Journal
from cadre.protocol.topology import tree_of
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.workspaces import WorkspaceSource

_MAX_TRIES = 5

_START_SECONDS = 10.0
"""A recorded turn may be so long without its Task: its gateway is about to publish it."""


@dataclass(frozen=True)
class Sessions:
    """Decides which run a session's next one goes on from."""

    turns: NatsSessions
    lookup: RunLookup
    journal: Journal
    history: History
    clock: Clock

    async def take_turn(
        self, agent: str, session: str, user: str | None, run: str, reset: bool
    ) -> str | None:
        """Makes `run` the last one of the person's session; returns the run whose memory it goes on from.

        Raises a 409 problem while the last one is still going (unless `reset`), RetryableError.
        """
        for _ in range(_MAX_TRIES):
            turn, fence = await self.turns.read(agent, session, user)
            if turn is not None and turn.run == run:
                last = turn.previous  # the same request, sent again
            else:
                last = await self._last_run(turn, session, reset) if turn else None
                try:
                    taken = SessionTurn(run=run, previous=last, at=self.clock.now())
                    await self.turns.record(agent, session, user, taken, fence)
                except Fenced:
                    continue
            return None if reset else last
        raise _busy(session, "others keep starting runs in it")

    async def files_of(self, run: str | None) -> WorkspaceSource | None:
        """The workspace that goes on with the memory of `run`; None when there is none (any more). Raises
        RetryableError."""
        if run is None or await self.lookup.is_erased(run):
            return None
        return WorkspaceSource(run)

    async def _last_run(self, turn: SessionTurn, session: str, reset: bool) -> str | None:
        """The last run of the session that was ever started. A turn without one counts as never taken, and after
        one that was erased the session begins afresh."""
        for run, at in ((turn.run, turn.at), (turn.previous, 0.0)):
            if run is None:
                continue
            tree = tree_of(run)
            if await self.lookup.is_erased(tree):
                return None
            stored = await self.journal.read(tree, run)
            if stored:
                ended = fold((one.entry for one in stored), run, tree).result is not None
                if not ended and not reset:
                    raise _busy(session, f"its last run {run} is still going: wait for it or cancel it")
                return run
            starts = self.clock.now() - at < _START_SECONDS
            if not reset and (starts or await self.history.task(tree, run) is not None):
                raise _busy(session, f"its last run {run} is about to start: wait for it or cancel it")
        return None


def _busy(session: str, why: str) -> Problem:
    return Problem(
        409,
        "session-busy",
        f"session {session!r}: {why}, or start afresh (reset=true; `cadre run --reset`)",
    )
