"""The trace of a run, computed from its journals."""

import asyncio

import msgspec

from cadre.api.traces import TraceSpan, TraceTree
from cadre.protocol.topology import is_within, tree_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.telemetry.tracing.tree_trace import TreeTrace, in_order
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem

MAX_SPANS = 50_000
"""The most spans of one answer."""


async def spans_of(lookup: RunLookup, tree: str, run: str, *, now: float, content: bool) -> list[SpanRecord]:
    """The spans of the run and of all runs below it; those of open work end `now`.

    Raises a 422 problem when there are more than MAX_SPANS, BusUnavailable.
    """
    trace = TreeTrace(content=content)
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(trace.take, [one.entry for one in page if is_within(one.entry.run, run)])
            if len(trace.spans) > MAX_SPANS:
                raise Problem(
                    422,
                    "trace-too-long",
                    f"the trace of run {run} has more than {MAX_SPANS} spans: ask for that of a run below it, or let"
                    " a tracer export it (docs/observability.md)",
                )
    return trace.until(now)


def tree_of_spans(run: str, spans: list[SpanRecord]) -> TraceTree:
    """The spans in the order in which a person reads them."""
    placed = [TraceSpan(**msgspec.structs.asdict(span), depth=depth) for depth, span in in_order(spans)]
    return TraceTree(id=run, trace=trace_id(tree_of(run)), spans=placed)
