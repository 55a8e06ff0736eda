"""Spans as data, before they are exported in any form; those that have begun and not ended, each under a key of its
run; and the entries with which a tree, or a part of it, can be sent whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from cadre.journal.entry import Entry
from cadre.journal.events import RunFinished
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import TRACEPARENT, sampled, trace_id

SpanKind = Literal["INTERNAL", "CLIENT", "PRODUCER", "CONSUMER"]
Status = Literal["UNSET", "OK", "ERROR"]
Value = str | bool | int | float | list[str]


class SpanLink(msgspec.Struct, frozen=True):
    """A link to a span of any trace; both ids in hex."""

    trace: str
    span: str


class Moment(msgspec.Struct, frozen=True):
    """A span event: something that happened within a span."""

    name: str
    at: int
    """Unix nanoseconds."""
    attributes: dict[str, Value] = {}


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One span. Ids are in hex, times in Unix nanoseconds."""

    trace: str
    span: str
    parent: str | None = None
    name: str
    kind: SpanKind = "INTERNAL"
    start: int
    end: int
    attributes: dict[str, Value] = {}
    links: list[SpanLink] = []
    moments: list[Moment] = []
    status: Status = "UNSET"
    message: str = ""
    """The reason of an ERROR."""
    service: str
    """The agent, tool or sandbox that did the work."""
    instance: str = ""
    """The replica of that service, where it is known."""
    version: str = ""
    """The version of that service, where it is known."""
    run: str
    open: bool = False
    """The span has not ended: it is shown by our own views and never exported."""


def nanoseconds(at: float) -> int:
    """Unix seconds, as a journal has them, in nanoseconds; a float of today is precise to microseconds only."""
    return round(at * 1e6) * 1000


def link_to(traceparent: str | None) -> list[SpanLink]:
    """Return the link to the span of a W3C traceparent in a list; empty when there is no valid one, or when its
    sender has not sampled it: no backend will have it."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return [SpanLink(found[1], found[2])] if found and sampled(traceparent) else []


SHORTEST = 1_000
"""The least length of a span, in nanoseconds."""


class Fault(NamedTuple):
    """The error of a span, with its reason. The message may quote users or models, so it is exported with the content
    only."""

    type: str
    message: str = ""


@dataclass
class OpenSpan:
    """A span with what is known of it so far; times in Unix nanoseconds."""

    span: str
    parent: str | None
    name: str
    start: int
    service: str
    kind: SpanKind = "INTERNAL"
    instance: str = ""
    version: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)
    links: list[SpanLink] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)


class OpenSpans:
    """The open spans of one run, and those that have ended since they were last taken."""

    def __init__(self, tree: str, run: str, *, content: bool) -> None:
        self._trace = trace_id(tree)
        self._run = run
        self._content = content
        self._open: dict[str, OpenSpan] = {}
        self._ended: list[SpanRecord] = []
        self.common: dict[str, Value] = {names.RUN: run}
        """Attributes of every span."""
        self.versions: dict[str, str] = {}
        """Versions of services, where they are known."""

    def begin(self, key: str, span: OpenSpan) -> OpenSpan:
        """Open a span under a key of the run; the key is free again once it has ended."""
        self._open[key] = span
        return span

    def get(self, key: str) -> OpenSpan | None:
        """Return the open span under a key, or None."""
        return self._open.get(key)

    def places(self) -> list[str]:
        """The keys of all open spans, in the order in which they were begun."""
        return list(self._open)

    def end(
        self,
        key: str,
        at: int,
        fault: Fault | None = None,
        status: Status = "UNSET",
        attributes: Mapping[str, Value] | None = None,
    ) -> None:
        """End the span under the key, if there is one; `attributes` are added to what it has."""
        span = self._open.pop(key, None)
        if span is not None:
            span.attributes |= attributes or {}
            self.add(span, at, fault, status)

    def add(self, span: OpenSpan, at: int, fault: Fault | None = None, status: Status = "UNSET") -> None:
        """Records a span that begins and ends at once, without a key."""
        self._ended.append(self._record(span, at, fault, status))

    def take(self) -> list[SpanRecord]:
        """Return the spans that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def unfinished(self, at: int) -> list[SpanRecord]:
        """The open spans as if they ended now; nothing changes."""
        return [self._record(span, at, None, "UNSET", is_open=True) for span in self._open.values()]

    def _record(
        self, span: OpenSpan, at: int, fault: Fault | None, status: Status, *, is_open: bool = False
    ) -> SpanRecord:
        attributes = self.common | span.attributes
        message = ""
        if fault is not None:
            attributes[names.ERROR_TYPE] = fault.type
            message = (fault.message if self._content else "") or fault.type
        return SpanRecord(
            trace=self._trace,
            span=span.span,
            parent=span.parent,
            name=span.name,
            kind=span.kind,
            start=span.start,
            # The clocks of two workers may differ, and backends take a span without a length for a broken one.
            end=max(span.start + SHORTEST, at),
            attributes=attributes,
            links=list(span.links),
            moments=list(span.moments),
            status="ERROR" if fault is not None else status,
            message=message,
            service=span.service,
            instance=span.instance,
            version=span.version or self.versions.get(span.service, ""),
            run=self._run,
            open=is_open,
        )


PART_SECONDS = 24 * 3600.0
"""Age at which a run ends a part of its tree, and again after each such time."""

PART_ENTRIES = 2000
"""Entries of one run after which it ends a part of its tree, and again after so many more."""


class TreePart(NamedTuple):
    """The spans that end with the entries behind `after`, up to the one that ends the part."""

    number: int
    """From 1."""
    after: int
    """Stream sequence of the entry that ended the part before; 0 for the first part."""
    is_last: bool
    """No run of the tree is open."""

    @property
    def is_whole(self) -> bool:
        """Return whether the part is the whole tree."""
        return self.number == 1 and self.is_last

    def mark(self, span: SpanRecord) -> SpanRecord:
        """Return the span with the number of its part, unless the tree is whole."""
        if self.is_whole:
            return span
        return msgspec.structs.replace(span, attributes={**span.attributes, names.TRACE_PART: self.number})


def may_end_part(entry: Entry, began: float) -> bool:
    """Return whether an entry can end a part of its tree; `began` is the time of its run's first entry."""
    return _finishes(entry) or entry.n % PART_ENTRIES == 0 or entry.at - began >= PART_SECONDS


class TreeParts:
    """The parts of one tree, as far as its entries were taken, in the order of their stream."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._runs: dict[str, tuple[float, float, int]] = {}
        """By run: the times of its first and its last entry, and the position of the last one."""
        self._open: set[str] = {tree}
        self._ends: dict[int, TreePart] = {}
        self.seq = 0
        """Stream sequence of the last entry."""

    def ended_by(self, seq: int) -> TreePart | None:
        """Return the part that the entry at this sequence ends; None for an entry that ends none."""
        return self._ends.get(seq)

    def missing_before(self, entry: Entry) -> int | None:
        """Return the position of the first entry of the run that is missing before this one; None when none is."""
        last = self._runs[entry.run][2] if entry.run in self._runs else 0
        return last + 1 if entry.n > last + 1 else None

    def take(self, seq: int, entry: Entry) -> None:
        """Take the next entry."""
        self.seq = seq
        began, before, last = self._runs.get(entry.run, (entry.at, entry.at, 0))
        self._runs[entry.run] = (began, entry.at, entry.n)
        if last == 0:
            self._open.add(entry.run)
        is_last = False
        if _finishes(entry):
            self._open.discard(entry.run)
            is_last = not self._open
        days = (before - began) // PART_SECONDS, (entry.at - began) // PART_SECONDS
        if is_last or days[0] != days[1] or entry.n % PART_ENTRIES == 0:
            after = next(reversed(self._ends), 0)
            self._ends[seq] = TreePart(len(self._ends) + 1, after, is_last)


def _finishes(entry: Entry) -> bool:
    return any(isinstance(event, RunFinished) for event in entry.events)
