"""Convert between an arrival and the entry that accounts for it: an entry holds all that its decision could know.

Events copy most of an arrival; what no event copies stands in `Entry.arrived`. So `arrival_of` takes an entry back to
its arrival for any kind of agent, and a decision can be made again.
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.journal import unions
from cadre.journal.arrivals import (
    Arrival,
    ModelFailed,
    ModelLost,
    ModelReplied,
    Poisoned,
    Toolset,
)
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.run import Run
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    Report,
    Signal,
    Task,
    ToolResult,
    UserMessage,
)
from cadre.spec.agent import AgentSpec

_LONGEST = 200
"""Bytes up to which a field of an ignored record is kept: what is larger has decided nothing."""

_PLAIN = (str, int, float)

_DERIVED = frozenset({"v", "id", "tree", "run", "at", "follows"})
"""Fields of a record that its entry holds already, or that no decision knows of."""


@functools.cache
def _copies() -> Mapping[str, tuple[type, ...]]:
    """Return the events that copy an arrival, each in the runs of its kind, by the name of the arrival's class."""
    found: dict[type, list[type]] = {
        ModelReplied: [ev.ModelAnswered],
        ToolResult: [ev.ToolAnswered],
        Report: [ev.DelegateFinished],
        Cancel: [ev.CancelRequested],
        Decision: [ev.ApprovalDecided],
        Signal: [ev.SignalReceived],
        UserMessage: [ev.MessageReceived],
        Edit: [ev.EditApplied],
    }
    for event in unions.close().events:
        if event.copies is not None:
            found.setdefault(event.copies, []).append(event)
    return {what.__name__: tuple(events) for what, events in found.items()}


@functools.cache
def _types() -> Mapping[str, type[msgspec.Struct]]:
    replies: tuple[type[msgspec.Struct], ...] = (ModelReplied, ModelFailed, ModelLost, Poisoned)
    return {one.__name__: one for one in (*unions.close().records, *replies)}


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """The fields of a class by name. Reading them evaluates all annotations, which takes a tenth of a millisecond."""
    return {field.name: field for field in unions.fields_of(kind)}


@functools.cache
def _left_over(kind: type[msgspec.Struct], copy: type | None) -> list[tuple[str, Any]]:
    """The fields that no event of the type `copy` has under the same name, with their defaults."""
    copied = getattr(copy, "__struct_fields__", ())
    return [
        (name, _default(field)) for name, field in _fields(kind).items() if name not in _DERIVED and name not in copied
    ]


@functools.cache
def _copied() -> Mapping[type, str]:
    """Return the names of the arrivals' classes by the event that copies them."""
    return {event: name for name, events in _copies().items() for event in events}


def arrived_of(what: Any, events: list[ev.AnyEvent], cause: str) -> ArrivalRecord | None:
    """Return the part of the arrival `what` that neither the events of the entry nor its cause hold; None where they
    hold all of it."""
    kind: type[msgspec.Struct] = type(what)
    name, first = kind.__name__, events[0]
    begins = type(first) is ev.RunAccepted
    if begins and isinstance(what, Task):
        return None
    fields: dict[str, Any] = {}
    if getattr(what, "id", cause) != cause:
        fields["id"] = what.id
    # The copy is the first of the events, where there is one.
    copied = type(first) in _copies().get(name, ())
    for key, default in _left_over(kind, type(first) if copied else None):
        value = getattr(what, key)
        if value == default or (begins and key == "task"):
            continue
        if isinstance(first, ev.MemoryRecalled) and key in ("output", "error", "tool"):
            continue
        if isinstance(first, ev.RecordIgnored) and not _is_short(value):
            continue
        fields[key] = value if isinstance(value, _PLAIN) else msgspec.to_builtins(value)
    if isinstance(what, ModelReplied) and isinstance(first, ev.ModelAnswered) and what.content != first.content:
        fields["content"] = what.content  # the event has it without the thoughts
    return ArrivalRecord(name, fields) if fields or _implied(first) != name else None


def _implied(first: ev.AnyEvent) -> str:
    """Return the name of the arrival's class that an entry with this first event has when it says nothing else."""
    return Task.__name__ if type(first) is ev.RunAccepted else _copied().get(type(first), "")


def arrival_of(run: Run, entry: Entry) -> Arrival:
    """Return what arrived at the run, in the state before the entry. Raises ValueError for an entry that does not
    tell.
    """
    accepted = next((event for event in entry.events if isinstance(event, ev.RunAccepted)), None)
    called = next((event for event in entry.events if isinstance(event, ev.ModelCalled)), None)
    offered = next((event for event in entry.events if isinstance(event, ev.ToolsetChanged)), None)
    spec = accepted.spec if accepted is not None else run.spec
    return Arrival(
        what=_what(entry, entry.arrived or ArrivalRecord(_implied(entry.events[0])), accepted),
        at=entry.at,
        cause=called.cause if called is not None else entry.cause,
        toolset=_toolset(run, offered),
        spec=spec or AgentSpec(name=entry.agent, description="Not told in this entry."),
        history=accepted.history if accepted is not None else [],
        prefix=accepted.prefix if accepted is not None else [],
        problem=_problem(entry),
        decided_by=accepted.decided_by if accepted is not None else "",
        kind_version=accepted.kind_version if accepted is not None else 0,
        revision=accepted.revision if accepted is not None else "",
        prompts=accepted.prompts if accepted is not None else "",
        sums={
            key: figure
            for event in entry.events
            if isinstance(event, ev.PolicyDecided | ev.RecordIgnored)
            for key, figure in event.facts.items()
        },
        base=accepted.fixed_tokens if accepted is not None else 0,
        base_with_toolset=offered.fixed_tokens if offered is not None else run.fixed_tokens,
    )


def _what(entry: Entry, arrived: ArrivalRecord, accepted: ev.RunAccepted | None) -> Any:
    if arrived.type == Task.__name__ and accepted is not None:
        return accepted.task
    kind = _types().get(arrived.type)
    if kind is None:
        raise ValueError(f"nothing of this version arrives as {arrived.type}")
    copy = _find(entry.events, _copies().get(arrived.type, ()))
    known: dict[str, Any] = {
        "id": entry.cause,
        "tree": entry.tree,
        "run": entry.run,
        "at": _sent_at(entry),
        **_recalled(entry),
    }
    names = _fields(kind)
    copied = {
        name: value
        for name, field in names.items()
        if (value := getattr(copy, name, None)) is not None or (copy is not None and _default(field) is None)
    }
    if isinstance(accepted, ev.RunAccepted) and "task" in names:
        copied["task"] = accepted.task
    fields = {**copied, **{key: value for key, value in known.items() if key in names}}
    builtins = msgspec.to_builtins({key: value for key, value in fields.items() if key != "v"})
    tag = kind.__struct_config__.tag
    about = {"type": tag} if tag is not None else {}
    needed = {name: _empty(field) for name, field in names.items() if field.required}
    return unions.converted({**needed, **builtins, **arrived.fields, **about}, kind)


def _sent_at(entry: Entry) -> float:
    """Return when the record was sent, as far as a decision depends on it: for how long an executor was at work."""
    first = entry.events[0]
    if isinstance(first, ev.ToolAnswered | ev.MemoryRecalled) and first.started_at is not None:
        return first.started_at + first.seconds
    return entry.at


def _recalled(entry: Entry) -> dict[str, Any]:
    """Return what the memory service answered, as far as the run has taken it."""
    first = entry.events[0]
    if not isinstance(first, ev.MemoryRecalled):
        return {}
    output = {"hits": first.memories, "degraded": bool(first.degraded), "why": first.degraded}
    return {"tool": RECALL, "output": output if first.error is None else None, "error": first.error}


def _toolset(run: Run, changed: ev.ToolsetChanged | None) -> Toolset:
    if changed is None:
        return Toolset(run.tools, run.members, run.missing, run.checks_with_calls)
    tools = {tool.name: tool for tool in changed.tools}
    members = {member.name: member for member in changed.members}
    return Toolset(tools, members, changed.missing, changed.checks_with_calls)


def _problem(entry: Entry) -> str:
    match entry.events:
        case [ev.RunAccepted(), ev.RunFinished(error=error)] if error is not None and error.code == "not-found":
            return error.message
        case _:
            return ""


def _find(events: list[ev.AnyEvent], kinds: tuple[type, ...]) -> ev.AnyEvent | None:
    return next((event for event in events if isinstance(event, kinds)), None)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT


def _empty(field: msgspec.structs.FieldInfo) -> Any:
    """Stands for a required field that an ignored record's entry does not keep."""
    return {int: 0, float: 0.0, str: ""}.get(field.type, [])


def _is_short(value: Any) -> bool:
    return len(msgspec.json.encode(value)) <= _LONGEST


def entry_of(
    run: Run,
    arrival: Arrival,
    events: list[ev.AnyEvent],
    cause: str,
    prev: str = "",
) -> Entry:
    """Return the entry of what the arrival has made true of the run, which is behind it.

    `cause` is the id of the record that it accounts for, or of the model's answer; `prev` the packed back-pointers.
    """
    return Entry(
        kind=run.decided_by,
        kind_version=run.kind_version,
        run=run.id,
        agent=arrival.spec.name,
        n=run.entries,
        cause=cause,
        at=arrival.at,
        arrived=arrived_of(arrival.what, events, cause),
        events=events,
        prev=prev,
    )
