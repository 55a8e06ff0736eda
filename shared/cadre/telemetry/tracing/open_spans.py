"""Spans that have begun and not ended, each under a key of its run until the journal says that it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.spans import Moment, SpanKind, SpanLink, SpanRecord, Status, Value

SHORTEST = 1_000
"""The least length of a span, in nanoseconds."""


class Fault(NamedTuple):
    """Why a span is an error. The message may quote users or models, so it is exported with the content only."""

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

    def begin(self, key: str, span: OpenSpan) -> OpenSpan:
        """Opens a span under a key of the run; the key is free again once it has ended."""
        self._open[key] = span
        return span

    def get(self, key: str) -> OpenSpan | None:
        """Returns the open span under a key; None when there is none."""
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
        """Ends the span under the key, if there is one; `attributes` are added to what it has."""
        span = self._open.pop(key, None)
        if span is not None:
            span.attributes |= attributes or {}
            self.add(span, at, fault, status)

    def add(self, span: OpenSpan, at: int, fault: Fault | None = None, status: Status = "UNSET") -> None:
        """Records a span that begins and ends at once, without a key."""
        self._ended.append(self._record(span, at, fault, status))

    def take(self) -> list[SpanRecord]:
        """Returns the spans that have ended since the last call."""
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
            version=span.version,
            run=self._run,
            open=is_open,
        )
