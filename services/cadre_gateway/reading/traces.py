"""The trace of a run, computed from its journals."""

import msgspec

from cadre.api.traces import TraceSpan, TraceTree
from cadre.ports import Stored
from cadre.protocol.topology import is_within, tree_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.telemetry.tracing.tree_trace import in_order, trace_of


def spans_of(stored: list[Stored], run: str, *, now: float, content: bool) -> list[SpanRecord]:
    """The spans of the run and of all runs below it; those of open work end at `now` (Unix seconds)."""
    entries = (one.entry for one in stored if is_within(one.entry.run, run))
    return trace_of(entries, now=now, content=content)


def tree_of_spans(run: str, spans: list[SpanRecord]) -> TraceTree:
    """The spans in the order in which a person reads them."""
    placed = [TraceSpan(**msgspec.structs.asdict(span), depth=depth) for depth, span in in_order(spans)]
    return TraceTree(id=run, trace=trace_id(tree_of(run)), spans=placed)
