"""The trace of a whole tree of runs from its journals, and its spans in reading order."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cadre.journal.entry import Entry
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord


def trace_of(entries: Iterable[Entry], *, now: float, content: bool = False) -> list[SpanRecord]:
    """The spans of all runs whose entries are given, including those still open at `now` (Unix seconds)."""
    runs: dict[str, Projection] = {}
    spans: list[SpanRecord] = []
    for entry in entries:
        run = runs.get(entry.run)
        if run is None:
            run = runs[entry.run] = Projection(entry.tree, entry.run, content=content)
        spans += run.apply(entry)
    for run in runs.values():
        spans += run.unfinished(now)
    return spans


class Placed(NamedTuple):
    """A span and its depth in the tree."""

    depth: int
    span: SpanRecord


def in_order(spans: Iterable[SpanRecord]) -> Iterator[Placed]:
    """Yields parents before their children, and siblings by time; a span without its parent counts as a root."""
    known = {span.span: span for span in spans}
    below: dict[str | None, list[SpanRecord]] = {}
    for span in known.values():
        below.setdefault(span.parent if span.parent in known else None, []).append(span)
    waiting = [Placed(0, span) for span in _later_first(below.get(None, []))]
    while waiting:
        placed = waiting.pop()
        yield placed
        waiting += [Placed(placed.depth + 1, one) for one in _later_first(below.get(placed.span.span, []))]


def _later_first(spans: list[SpanRecord]) -> list[SpanRecord]:
    return sorted(spans, key=lambda span: (span.start, -span.end, span.span), reverse=True)
