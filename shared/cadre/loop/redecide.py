"""Decide a journal again: would this version of Cadre, given the same arrivals, have written the same?

Each entry is taken back to what had arrived, `decide` decides again in the state before it, and the decision
is held against the journaled one. On the way numbers and back-pointers are held against the entries, and what runs say
of each other against what they owe: a child's task against its parent's call, a report against the child's end.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from cadre.engine.commands import Send
from cadre.engine.fold import apply_entry, fold
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.entry import BackPointers, Entry
from cadre.journal.events import AnyEvent
from cadre.journal.run import Run
from cadre.loop.arrival_of import arrival_of
from cadre.loop.decide import decide
from cadre.loop.owed import owed
from cadre.protocol.messages import Report, Task

About = Literal["decision", "number", "back-pointers", "commands", "task", "report"]


class Journaled(NamedTuple):
    """An entry and its sequence in the stream."""

    seq: int
    entry: Entry


class Divergence(msgspec.Struct, frozen=True):
    """A point where a journal and this version of Cadre disagree."""

    run: str
    n: int
    about: About
    lines: list[str]


class Undecided(msgspec.Struct, frozen=True):
    """An entry that does not tell what had arrived."""

    run: str
    n: int
    reason: str


class Replay(msgspec.Struct, kw_only=True):
    """The outcome of deciding the journals of some runs again."""

    runs: int = 0
    entries: int = 0
    decided: int = 0
    divergences: list[Divergence] = []
    undecided: list[Undecided] = []


def redecide(journals: Iterable[Sequence[Journaled]], *, decisions_only: bool = False) -> Replay:
    """Decide the whole journals of any number of runs again, each in order from its first entry.

    With `decisions_only` nothing but the decisions is compared, without the words of the specification that they quote,
    and of each run up to the first other one: for entries that are not as they were journaled, and decisions that are
    not meant to be the same.
    """
    replay = Replay(divergences=[], undecided=[])
    redeciders = [_Redecider(journal, replay) for journal in journals if journal]
    for redecider in redeciders:
        redecider.follow(decisions_only)
    if decisions_only:
        return replay
    tasks = {run: told for redecider in redeciders for run, told in redecider.tasks.items()}
    reports = {run: told for redecider in redeciders for run, told in redecider.reports.items()}
    for redecider in redeciders:
        redecider.compare_with_relatives(tasks, reports)
    replay.divergences.sort(key=lambda one: (one.run, one.n))
    return replay


class _Redecider:
    """One run on its way through its journal."""

    def __init__(self, journal: Sequence[Journaled], replay: Replay) -> None:
        self._journal, self._replay = journal, replay
        first = journal[0].entry
        self._retraced = Retraced(first.run, first.tree)
        self._pointers = BackPointers()
        self.tasks: dict[str, Task] = {}
        """The tasks that it gave its children."""
        self.reports: dict[str, Report] = {}
        """The reports that it made itself."""

    @property
    def _run(self) -> Run:
        return self._retraced.run

    def follow(self, decisions_only: bool) -> None:
        self._replay.runs += 1
        before = len(self._replay.divergences)
        for seq, entry in self._journal:
            self._replay.entries += 1
            if not decisions_only:
                self._check_place(entry)
            self._decide(entry, decisions_only)
            if decisions_only and len(self._replay.divergences) > before:
                return
            self._retraced.take(entry)
            if not decisions_only:
                self._check_owed(entry)
            self._pointers.note(seq)

    def compare_with_relatives(self, tasks: dict[str, Task], reports: dict[str, Report]) -> None:
        for _, entry in self._journal:
            for event in entry.events:
                match event:
                    case ev.RunAccepted(task=task) if task.run in tasks:
                        lines = differences(plain(task), plain(tasks[task.run]), "task")
                        self._diverges(entry, "task", lines)
                    case ev.DelegateFinished(call=call) if call in reports:
                        lines = differences(plain(event), _as_journaled(event, reports[call]), "report")
                        self._diverges(entry, "report", lines)
                    case _:
                        pass

    def _check_place(self, entry: Entry) -> None:
        if entry.n != self._run.entries + 1:
            self._diverges(entry, "number", [f"entry {entry.n} follows entry {self._run.entries}"])
        if entry.prev != self._pointers.packed():
            lines = differences(entry.earlier, self._pointers.sequences(), path="prev")
            self._diverges(entry, "back-pointers", lines)

    def _decide(self, entry: Entry, decisions_only: bool) -> None:
        try:
            arrival = arrival_of(self._run, entry)
        except ValueError:
            what = f"entry of cause {entry.cause!r} with {_names(entry.events)}: what arrived is not in it"
            self._replay.undecided.append(Undecided(entry.run, entry.n, what))
            return
        self._replay.decided += 1
        try:
            lines = _compare(entry, self._retraced.decide(arrival, entry.cause), decisions_only)
        except Exception as error:
            # Any error of this version in an old run is what the replay looks for.
            lines = [f"deciding fails now: {type(error).__name__}: {error}"]
        self._diverges(entry, "decision", lines)

    def _check_owed(self, entry: Entry) -> None:
        try:
            commands = owed(self._run, since=entry.n)
            everything = owed(self._run)
        except Exception as error:
            self._diverges(entry, "commands", [f"working out what is owed fails now: {type(error).__name__}: {error}"])
            return
        lost = [command for command in commands if command not in everything]
        self._diverges(entry, "commands", [f"owed at once, forgotten by a redelivery: {command!r}" for command in lost])
        for command in commands:
            if isinstance(command, Send) and isinstance(command.message, Task):
                self.tasks[command.message.run] = command.message
            elif isinstance(command, Send) and isinstance(command.message, Report):
                self.reports[command.message.child] = command.message

    def _diverges(self, entry: Entry, about: About, lines: list[str]) -> None:
        if lines:
            self._replay.divergences.append(Divergence(entry.run, entry.n, about, lines))


def _compare(entry: Entry, now: list[ev.AnyEvent], decisions_only: bool) -> list[str]:
    was = entry.events
    if [type(event) for event in was] != [type(event) for event in now]:
        return [f"journaled {_names(was)}", f"now       {_names(now)}", *_of_the_end(was, now)]
    lines: list[str] = []
    for place, (old, new) in enumerate(zip(was, now, strict=True)):
        if isinstance(old, ev.RecordIgnored) and isinstance(new, ev.RecordIgnored) and old.kind == new.kind:
            continue  # the record itself is not kept, so the reason may be less exact
        if decisions_only:
            new = msgspec.structs.replace(new, **{name: getattr(old, name) for name in new.quoted})
        lines += differences(plain(old), plain(new), f"{place + 1}. {_name(old)}")
    return lines


def _of_the_end(was: list[ev.AnyEvent], now: list[ev.AnyEvent]) -> list[str]:
    """Return where one of the two ends the run: why."""
    lines = []
    for who, events in (("journaled", was), ("now      ", now)):
        end = events[-1] if events else None
        if isinstance(end, ev.RunFinished):
            why = f": {end.error.type}: {end.error.message}" if end.error is not None else ""
            lines.append(f"{who} end: {end.state}{why}")
        lines += [f"{who} refusal: {event.error.message}" for event in events if isinstance(event, ev.CallRefused)]
    return lines


def _as_journaled(event: ev.DelegateFinished, report: Report) -> Any:
    """The event that the report would have become; its text is written by the child's service."""
    return plain(
        msgspec.structs.replace(
            event,
            member=report.agent,
            state=report.state,
            output=report.output,
            error=report.error,
            usage=report.usage,
            steps=report.steps,
        )
    )


def _names(events: list[ev.AnyEvent]) -> str:
    return ", ".join(map(_name, events)) or "nothing"


def _name(event: ev.AnyEvent) -> str:
    return str(event.__struct_config__.tag)


class Retraced:
    """`run` is in the state behind the entries that were taken."""

    def __init__(self, run: str, tree: str) -> None:
        self.run = Run(id=run, tree=tree)
        self._taken: list[Entry] = []
        self._decided: list[AnyEvent] | None = None
        self._is_touched = False

    def decide(self, arrival: Arrival, cause: str) -> list[AnyEvent]:
        """Return what is decided now in the place of the next entry, which is then to be taken. Raises what deciding
        raises."""
        self._is_touched = True
        self._decided = decide(self.run, arrival, cause)
        return self._decided

    def take(self, entry: Entry) -> None:
        """Go on behind the entry, regardless of what was decided in its place."""
        decided, is_touched = self._decided, self._is_touched
        self._decided, self._is_touched = None, False
        if is_touched and (decided != entry.events or self.run.entries != entry.n):
            self.run, is_touched = fold(self._taken, self.run.id, self.run.tree), False
        if not is_touched:
            apply_entry(self.run, entry)
        self._taken.append(entry)


_LONGEST = 160
_ABSENT: Any = object()


def plain(value: Any) -> Any:
    """Return a value of messages, events or state as JSON types, with its fields that have their defaults; None within
    it is left out."""
    if isinstance(value, msgspec.Struct):
        return _tag(value) | {name: _within(getattr(value, name)) for name in value.__struct_fields__}
    return _within(value)


def _within(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = {name: _within(getattr(value, name)) for name in value.__struct_fields__}
        return _tag(value) | {name: one for name, one in fields.items() if one is not None}
    if isinstance(value, dict):
        return {str(key): _within(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_within(one) for one in value]
    return msgspec.to_builtins(value, order="deterministic")


def _tag(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    return {config.tag_field: config.tag} if config.tag_field is not None else {}


def differences(was: Any, now: Any, path: str = "") -> list[str]:
    """Return a line for each place where `now` differs from `was`.

    Numbers with a fraction agree when they differ by rounding only.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        return _of_objects(was, now, path)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            line
            for index, (old, new) in enumerate(zip(was, now, strict=True))
            for line in differences(old, new, f"{path}[{index}]")
        ]
    if was == now or _close(was, now):
        return []
    return [f"{path or 'value'}: journaled {_short(was)}, now {_short(now)}"]


def _of_objects(was: dict[str, Any], now: dict[str, Any], path: str) -> list[str]:
    lines: list[str] = []
    for key in [*was, *(key for key in now if key not in was)]:
        where = f"{path}.{key}" if path else key
        lines += differences(was.get(key, _ABSENT), now.get(key, _ABSENT), where)
    return lines


def _close(was: Any, now: Any) -> bool:
    numbers = isinstance(was, float) or isinstance(now, float)
    if not numbers or not isinstance(was, float | int) or not isinstance(now, float | int):
        return False
    return math.isclose(was, now, rel_tol=1e-9, abs_tol=1e-5)


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
