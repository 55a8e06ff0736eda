"""The rules of every journal: one gapless history, each cause once, ended, with every call answered once."""

from collections import Counter
from collections.abc import Iterator

from cadre.engine.fold import fold
from cadre.journal import events as ev
from cadre.journal.entry import BackPointers
from cadre.journal.run import Phase
from cadre.ports import Stored
from cadre.protocol.topology import tree_of
from chaos.evidence import Evidence


def violations(evidence: Evidence) -> Iterator[str]:
    for run, journal in evidence.journals.items():
        for check in (_history, _pointers, _course, _calls):
            for problem in check(run, journal):
                yield f"journal of {run}: {problem}"
        for problem in _reports(run, journal, evidence.journals):
            yield f"journal of {run}: {problem}"


def events_of(journal: list[Stored]) -> list[ev.AnyEvent]:
    return [event for stored in journal for event in stored.entry.events]


def end_of(journal: list[Stored]) -> ev.RunFinished | None:
    return next((event for event in events_of(journal) if isinstance(event, ev.RunFinished)), None)


def _history(run: str, journal: list[Stored]) -> Iterator[str]:
    numbers = [stored.entry.n for stored in journal]
    if numbers != list(range(1, len(journal) + 1)):
        yield f"its entries are numbered {numbers}"
    for cause, times in Counter(stored.entry.cause for stored in journal).items():
        if times > 1:
            yield f"{cause} is the cause of {times} entries"
    if strangers := {(stored.entry.tree, stored.entry.run) for stored in journal} - {(tree_of(run), run)}:
        yield f"it holds entries of {sorted(strangers)}"


def _pointers(run: str, journal: list[Stored]) -> Iterator[str]:
    """Yield violations: a reader that goes back from the last entry sees every entry."""
    pointers = BackPointers()
    for seq, entry in journal:
        if entry.prev != pointers.packed():
            yield f"entry {entry.n} points back to {entry.earlier}, not to {pointers.sequences()}"
        pointers.note(seq)


def _course(run: str, journal: list[Stored]) -> Iterator[str]:
    events = events_of(journal)
    tags = Counter(type(event).__struct_config__.tag for event in events)
    for tag in ("run.accepted", "run.finished"):
        if tags[tag] != 1:
            yield f"{tag} is there {tags[tag]} times"
    end = end_of(journal)
    if end is not None:
        if end.state != "success":
            yield f"it ended as {end.state}: {end.error.message if end.error else ''}"
        after = events[events.index(end) + 1 :]
        late = ev.RecordIgnored | ev.ToolAnswered | ev.DelegateFinished  # what came of calls that the end cut short
        if any(not isinstance(event, late) for event in after):
            yield "something happened after its end"
    state = fold((stored.entry for stored in journal), run, tree_of(run))
    if state.phase is not Phase.DONE or state.open_calls():
        yield f"it is left in phase {state.phase.value} with {len(state.open_calls())} open calls"
    bought = Counter((e.purpose, e.step) for e in events if isinstance(e, ev.ModelAnswered))
    for (purpose, step), times in bought.items():
        if times > 1:
            yield f"the model's answer for {purpose} of step {step} was kept {times} times"


def _calls(run: str, journal: list[Stored]) -> Iterator[str]:
    """Each call was made once, and answered once."""
    events = events_of(journal)
    opened = Counter(e.call for e in events if isinstance(e, ev.ToolCalled | ev.DelegateStarted))
    closed = Counter(e.call for e in events if isinstance(e, ev.ToolAnswered | ev.DelegateFinished))
    for call in opened | closed:
        if (opened[call], closed[call]) != (1, 1):
            yield f"call {call} was made {opened[call]} times and answered {closed[call]} times"
    asked = Counter(e.call for e in events if isinstance(e, ev.ApprovalRequested))
    decided = Counter(e.call for e in events if isinstance(e, ev.ApprovalDecided))
    for call in asked | decided:
        if (asked[call], decided[call]) != (1, 1):
            yield f"call {call} was held {asked[call]} times and decided on {decided[call]} times"
    for event in events:
        # A plan whose step cannot be done for the moment is made again, as it is where that step fails.
        if isinstance(event, ev.CallRefused) and event.name != "balk":
            yield f"call {event.call} of {event.name} was refused: {event.error.message}"


def _reports(run: str, journal: list[Stored], journals: dict[str, list[Stored]]) -> Iterator[str]:
    """A member's report is what its own journal ended with."""
    for event in events_of(journal):
        if isinstance(event, ev.DelegateStarted) and event.call not in journals:
            yield f"its member's run {event.call} has no journal"
        if isinstance(event, ev.DelegateFinished):
            end = end_of(journals.get(event.call, []))
            if end is None:
                yield f"it has a report of {event.call}, whose journal has no end"
            elif (end.state, end.output) != (event.state, event.output):
                yield f"{event.call} reported {event.state}, {event.output!r} and ended as {end.state}, {end.output!r}"
