"""Check cancels, messages, ticks and followers against the streams and what clients saw. Like the adversary's audit,
this imports nothing from Cadre."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos.adversary.audit import Books, Entry, Message, events_of, followers

TICK = "tick"
"""The first word of the task of a scheduled run: `tick COUNT TIME`."""

UNDONE = {"back_second": "second", "back_first": "first"}
"""Steps that make up for others, in the order in which they must come."""


@dataclass
class Told:
    """A message to a run, as its sender saw it."""

    text: str
    status: int


@dataclass
class Absence:
    """An absence; times are Unix seconds."""

    what: str
    began: float
    ended: float


@dataclass
class Seen:
    """The deployment as the clients saw it from outside."""

    runs: dict[str, str] = field(default_factory=dict)
    """The run of each request, by its Idempotency-Key, which is the last word of its task."""
    refused: list[str] = field(default_factory=list)
    """Starts that a gateway refused with a status that no client should have to live with."""
    streams: dict[str, list[int]] = field(default_factory=dict)
    """Ids of the events that each run's follower received, over all its connections."""
    heard: dict[str, dict[int, float]] = field(default_factory=dict)
    """The Unix time at which each of these came, by run."""
    ends: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """State and output of each run as a gateway reports them at the end."""
    cancels: dict[str, list[int]] = field(default_factory=dict)
    """Statuses of the requests with one key that cancel a run, by run."""
    told: dict[str, list[Told]] = field(default_factory=dict)
    """Messages of one sender to a run, each sent when the one before was acknowledged."""
    wanted: dict[str, Any] = field(default_factory=dict)
    """The output that a run must have."""
    index_away: list[Absence] = field(default_factory=list)
    away: list[Absence] = field(default_factory=list)
    every: float = 0.0
    """Seconds between two ticks of the schedule; 0 where there was none."""
    ticking: float = 0.0
    """Seconds for which it was on."""


def judge(shards: dict[str, list[Message]], seen: Seen, *, late: float) -> list[str]:
    """Return the violations, a line each; [] when everything held. While the index is away, an event may reach a
    follower up to `late` seconds after it was journaled."""
    books = [Books(messages) for messages in shards.values()]
    journals = {run: journal for book in books for run, journal in book.journals.items()}
    return [
        *(line for book in books for line in book.problems()),
        *seen.refused,
        *_runs(journals, seen),
        *followers(journals, seen.streams),
        *_cancels(journals, seen),
        *_messages(journals, seen),
        *_ticks(journals, seen),
        *_index_away(journals, seen, late),
        *_outputs(seen),
    ]


def _task(journals: dict[str, list[Entry]], run: str) -> str:
    accepted = (event for event in events_of(journals, run) if event["type"] == "run.accepted")
    return str(next((event["task"]["task"] for event in accepted), ""))


def _runs(journals: dict[str, list[Entry]], seen: Seen) -> Iterator[str]:
    asked = {run: key for key, run in seen.runs.items()}
    for key, run in seen.runs.items():
        if _task(journals, run).rpartition(" ")[2] != key:
            yield f"request {key} was answered with run {run}, whose task is {_task(journals, run)!r}"
    for run in journals:
        if run not in asked and _task(journals, run).partition(" ")[0] != TICK:
            yield f"run {run} ({_task(journals, run)!r}) was begun, and nobody asked for it"


def _cancels(journals: dict[str, list[Entry]], seen: Seen) -> Iterator[str]:
    """However often a cancel is sent with its key it is one, and what was done is made up for in reverse order."""
    for run, statuses in seen.cancels.items():
        if wrong := sorted({*statuses} - {200, 202, 409}):
            yield f"run {run}: its cancels were answered {wrong}"
        events = events_of(journals, run)
        asked = sum(event["type"] == "cancel.requested" for event in events)
        if asked != 1:
            yield f"run {run}: its {len(statuses)} cancels with one key are {asked} in the journal"
        if [event["state"] for event in events if event["type"] == "run.finished"] != ["cancelled"]:
            yield f"run {run}: it was cancelled, and ended as {seen.ends.get(run)}"
        called = {event["call"]: event["arguments"]["job"] for event in events if event["type"] == "tool.called"}
        answered = [event for event in events if event["type"] == "tool.answered" and not event.get("error")]
        done = [called[event["call"]].rpartition(".")[2] for event in answered if event["call"] in called]
        back = [step for step in done if step in UNDONE]
        wanted = [step for step, forward in UNDONE.items() if forward in done]
        if back != wanted:
            yield f"run {run}: of {[step for step in done if step not in UNDONE]} it made up for by {back}"


def _messages(journals: dict[str, list[Entry]], seen: Seen) -> Iterator[str]:
    """Check that messages acknowledged in order are read in order, and once."""
    for run, told in seen.told.items():
        acknowledged = [one.text for one in told if one.status in (200, 202)]
        read = [event["text"] for event in events_of(journals, run) if event["type"] == "message.received"]
        if read != acknowledged:
            yield f"run {run}: it was told {acknowledged}, each after the one before was acknowledged, and read {read}"
        if wrong := sorted({one.status for one in told} - {200, 202}):
            yield f"run {run}: messages to it were answered {wrong}"


def _ticks(journals: dict[str, list[Entry]], seen: Seen) -> Iterator[str]:
    """Each tick starts its run once, and none is left out."""
    if not seen.every:
        return
    found: dict[int, list[tuple[str, int]]] = {}
    for run in journals:
        first, _, rest = _task(journals, run).partition(" ")
        if first == TICK:
            number, at = map(int, rest.split())
            found.setdefault(number, []).append((run, at))
    for number, starts in sorted(found.items()):
        if len(starts) > 1:
            yield f"tick {number} has begun {len(starts)} runs: {[run for run, _ in starts]}"
    numbers = sorted(found)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the ticks {sorted({*range(1, max(numbers, default=0) + 1)} - {*numbers})} have begun no run"
    times = sorted(at for starts in found.values() for _, at in starts)
    for at, following in itertools.pairwise(times):
        if following - at != seen.every:
            yield f"between two ticks lie {following - at} s, at {at}: not {seen.every:g}"
    if len(numbers) < seen.ticking / seen.every - 2:
        yield f"in {seen.ticking:.0f} s there were {len(numbers)} ticks, one every {seen.every:g} s"


def _index_away(journals: dict[str, list[Entry]], seen: Seen, late: float) -> Iterator[str]:
    """Followers hear the journal: that the index is away delays nothing."""
    for absence in seen.index_away:
        awaited = [
            (run, entry)
            for run in seen.heard
            for entry in journals.get(run, [])
            if absence.began <= entry.body["at"] <= absence.ended - late
        ]
        if not awaited:
            yield f"nothing was journaled for a follower while {absence.what} was away: nothing is shown by that"
        for run, entry in awaited:
            came = seen.heard[run].get(entry.seq)
            if came is not None and came - entry.body["at"] > late:
                yield (
                    f"run {run}: entry {entry.body['n']} came {came - entry.body['at']:.1f} s after it was journaled"
                    f" while {absence.what} was away"
                )


def _outputs(seen: Seen) -> Iterator[str]:
    for run, output in seen.wanted.items():
        if seen.ends.get(run) != ("success", output):
            yield f"run {run}: it ended as {seen.ends.get(run)}, not in success with {output!r}"
    missing = Counter(absence.what for absence in seen.away if absence.ended <= absence.began)
    for what in missing:
        yield f"{what} was never away"
