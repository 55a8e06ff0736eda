"""Calls that rules count over a tree or a user's day: reserved before the journal says that they are made.

A run writes its own line in the tally, by compare-and-set, and decides again when another one was first. What it has
reserved and not made is given back behind the entry, or as its record comes again.
"""

import hashlib
from typing import Any, NamedTuple

from cadre.engine.policies.tally import day_of, line_of, others_in, reserved, settled, spans_of
from cadre.errors import Fenced
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.ports import Tallies
from cadre.protocol.messages import Task
from cadre.protocol.policy import Span, TalliedCalls, Tally


class _Place(NamedTuple):
    tree: str
    name: str


class _StoredTally(NamedTuple):
    place: _Place
    tally: Tally | None
    fence: int


class KnownSums:
    """The tallies of a run as they were read for one decision."""

    def __init__(self, tallies: Tallies, spans: dict[Span, _StoredTally], calls: frozenset[Any], at: float) -> None:
        self._tallies, self.spans, self._calls, self._at = tallies, spans, calls, at

    def others(self, run: str) -> dict[Span, list[TalliedCalls]]:
        """Return the calls of other runs."""
        return {span: others_in(stored.tally, run) for span, stored in self.spans.items()}

    async def reserve(self, run: Run) -> None:
        """Count the calls that the decision has made, before it is journaled. Raises Fenced where others have been
        counted since, RetryableError."""
        if not self.spans or _calls_of(run) <= self._calls:
            return
        for span, stored in self.spans.items():
            tally = reserved(stored.tally, run.id, line_of(run, span, self._at))
            await self._tallies.write(*stored.place, tally, stored.fence)
            self.spans[span] = stored._replace(tally=tally)

    def are_other_than(self, run: Run) -> bool:
        """Return whether a tally says something else than the run's journal, once that holds the decision."""
        return any(
            settled(stored.tally, run.id, line_of(run, span, self._at)) is not None
            for span, stored in self.spans.items()
        )


class SharedSums:
    """Reads and settles the tallies of runs."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies

    async def of(self, run: Run, arrival: Arrival) -> KnownSums:
        """Return the tallies by which the rules of a run decide. Raises BusUnavailable."""
        stored = {span: await self._read(place) for span, place in _places(run, arrival.at, arrival).items()}
        return KnownSums(self._tallies, stored, _calls_of(run), arrival.at)

    async def settle(self, run: Run, at: float) -> None:
        """Have the tallies say what counts by the run's journal. Raises RetryableError."""
        for span, place in _places(run, at).items():
            while True:
                stored = await self._read(place)
                tally = settled(stored.tally, run.id, line_of(run, span, at))
                if tally is None:
                    break
                try:
                    await self._tallies.write(*place, tally, stored.fence)
                except Fenced:
                    continue
                break

    async def _read(self, place: _Place) -> _StoredTally:
        return _StoredTally(place, *await self._tallies.read(*place))


def _places(run: Run, at: float, arrival: Arrival | None = None) -> dict[Span, _Place]:
    """Return where the tallies are that the rules of a run ask for; `arrival` may be the task of a run that begins."""
    task, policies = run.task, []
    if task is None and arrival is not None and isinstance(arrival.what, Task):
        task = arrival.what
        policies = [arrival.spec.policies, *(task.standing.policies if task.standing is not None else ())]
    if task is None:
        return {}
    found: dict[Span, _Place] = {}
    for span in spans_of(run, policies):
        if span == "tree":
            found[span] = _Place(run.tree, "tree")
        else:
            user = task.origin.user if task.origin is not None else None
            digest = hashlib.sha256((user or "").encode()).hexdigest()[:32]
            found[span] = _Place(f"_day{digest}", f"day{day_of(at)}")
    return found


def _calls_of(run: Run) -> frozenset[Any]:
    return frozenset(run.facts.calls.items()) if run.facts is not None else frozenset()
