"""Calls that several runs count together: what a run adds to them, and what the others have.

A run has one line in each tally, which follows from its journal. So a write that is made twice counts once.
"""

from collections.abc import Iterable, Sequence

import msgspec

from cadre.journal.run import Phase, Run
from cadre.protocol.policy import Policy, Span, TalliedCalls, Tally, TallyLine
from cadre.spec.policy_file import spans_in

_DAY_SECONDS = 86_400

_MOST_LINES = 512
"""Lines of a tally; those of ended runs are added up beyond it."""


def day_of(at: float) -> int:
    """Return the number of the UTC day of a time in Unix seconds, 0 for 1970-01-01."""
    return int(at // _DAY_SECONDS)


def spans_of(run: Run, begun: Sequence[Sequence[Policy]]) -> set[Span]:
    """Return over what the rules of a run count calls; `begun` are the policies that will rule a run that begins."""
    groups = run.policies if run.spec is not None else begun
    return {span for group in groups for span in spans_in(group)}


def line_of(run: Run, span: Span, at: float) -> TallyLine:
    """Return the line of a run in its present state."""
    today = day_of(at)
    made = run.facts.calls.values() if run.facts is not None else ()
    counting = [one for one in made if span == "tree" or day_of(one.at) == today]
    calls = _added(TalliedCalls(one.tool, one.does, 1, one.amount) for one in counting)
    return TallyLine(run.entries, calls, run.phase is Phase.DONE)


def others_in(tally: Tally | None, run: str) -> list[TalliedCalls]:
    """Return the calls of the other runs."""
    if tally is None:
        return []
    lines = (line for name, line in tally.lines.items() if name != run)
    return _added([*tally.rest, *(one for line in lines for one in line.calls)])


def reserved(tally: Tally | None, run: str, line: TallyLine) -> Tally:
    """Return the tally with the line of a run that is about to make calls. What it has there already stays: others may
    have counted on it."""
    known = tally.lines.get(run) if tally is not None else None
    most: dict[tuple[str, str], TalliedCalls] = {(one.tool, one.does): one for one in line.calls}
    for one in known.calls if known is not None else ():
        more = most.get((one.tool, one.does), one)
        most[one.tool, one.does] = msgspec.structs.replace(
            more, count=max(one.count, more.count), amount=max(one.amount, more.amount)
        )
    n = max(line.n, known.n) if known is not None else line.n
    return _with(tally, run, msgspec.structs.replace(line, n=n, calls=[*most.values()]))


def settled(tally: Tally | None, run: str, line: TallyLine) -> Tally | None:
    """Return the tally with exactly the calls that count by the run's journal; None where it says so, or later entries
    have been counted."""
    known = tally.lines.get(run) if tally is not None else None
    if known is None and (line.ended or not line.calls):
        return None
    if known is not None and (known.n > line.n or (known.calls, known.ended) == (line.calls, line.ended)):
        return None
    return _with(tally, run, line)


def _with(tally: Tally | None, run: str, line: TallyLine) -> Tally:
    before = tally if tally is not None else Tally()
    lines, rest = {**before.lines, run: line}, before.rest
    if len(lines) > _MOST_LINES:
        ended = [name for name, one in lines.items() if one.ended and name != run]
        rest = _added([*rest, *(call for name in ended for call in lines[name].calls)])
        lines = {name: one for name, one in lines.items() if name not in ended}
    return Tally(lines=lines, rest=rest)


def _added(calls: Iterable[TalliedCalls]) -> list[TalliedCalls]:
    found: dict[tuple[str, str], TalliedCalls] = {}
    for one in calls:
        so_far = found.get((one.tool, one.does))
        found[one.tool, one.does] = (
            one
            if so_far is None
            else TalliedCalls(one.tool, one.does, so_far.count + one.count, so_far.amount + one.amount)
        )
    return [*found.values()]
