"""The trace of a whole tree of runs from its journals, and its spans in reading order."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cadre.journal.entry import Entry
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord


class TreeTrace:
    """The spans of the runs of a tree, as far as their entries were taken in."""

    def __init__(self, *, content: bool = False) -> None:
        self.spans: list[SpanRecord] = []
        """Those that have ended."""
        self._content = content
        self._runs: dict[str, Projection] = {}

    def take(self, entries: Iterable[Entry]) -> None:
        """Takes in entries in the order of their stream."""
        for entry in entries:
            run = self._runs.get(entry.run)
            if run is None:
                run = self._runs[entry.run] = Projection(entry.tree, entry.run, content=self._content)
            self.spans += run.apply(entry)

    def until(self, now: float) -> list[SpanRecord]:
        """All spans; those still open end at `now` (Unix seconds)."""
        return self.spans + [span for run in self._runs.values() for span in run.unfinished(now)]


def trace_of(entries: Iterable[Entry], *, now: float, content: bool = False) -> list[SpanRecord]:
    """The spans of all runs whose entries are given, including those still open at `now` (Unix seconds)."""
    trace = TreeTrace(content=content)
    trace.take(entries)
    return trace.until(now)


class Placed(NamedTuple):
    """A span and its depth in the tree."""

    depth: int
    span: SpanRecord


def in_order(spans: Iterable[SpanRecord]) -> Iterator[Placed]:
    """Yield parents before their children, and siblings by time; a span without its parent counts as a root.

    The sending of a call is left out: to a reader it is the call itself.
    """
    known = {span.span: span for span in spans}
    sent = {span.span: span.parent for span in known.values() if span.kind == "PRODUCER"}
    below: dict[str | None, list[SpanRecord]] = {}
    for span in known.values():
        if span.span not in sent:
            parent = sent.get(span.parent or "", span.parent)
            below.setdefault(parent if parent in known else None, []).append(span)
    waiting = [Placed(0, span) for span in _later_first(below.get(None, []))]
    while waiting:
        placed = waiting.pop()
        yield placed
        waiting += [Placed(placed.depth + 1, one) for one in _later_first(below.get(placed.span.span, []))]


def _later_first(spans: list[SpanRecord]) -> list[SpanRecord]:
    return sorted(spans, key=lambda span: (span.start, -span.end, span.span), reverse=True)
