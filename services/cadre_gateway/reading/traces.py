"""The trace of a run, computed from its journals."""

import asyncio
from collections.abc import Iterable

import msgspec

from cadre.api.traces import TraceSpan, TraceTree
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.protocol.topology import is_within, tree_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.telemetry.tracing.tree_trace import TreeTrace, in_order
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem

MAX_SPANS = 50_000
"""The most spans of one answer."""


async def page_of_spans(  # noqa: PLR0913 - a page of what, and which one
    lookup: RunLookup, tree: str, run: str, *, now: float, content: bool, limit: int, after: int
) -> tuple[list[SpanRecord], int | None]:
    """So many spans behind the first `after`, in the order in which they ended, and what is `after` for the next page.

    Without a next page those of open work come in addition. No more than a page is kept. Raises BusUnavailable.
    """
    trace = TreeTrace(content=content)
    left_out = 0
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(trace.take, _within(page, run))
            surplus = min(after - left_out, len(trace.spans))
            del trace.spans[:surplus]
            left_out += surplus
            if len(trace.spans) > limit:
                return trace.spans[:limit], after + limit
    return trace.until(now), None


async def spans_of(lookup: RunLookup, tree: str, run: str, *, now: float, content: bool) -> list[SpanRecord]:
    """The spans of the run and of all runs below it; those of open work end `now`.

    Raises a 422 problem when there are more than MAX_SPANS, BusUnavailable.
    """
    trace = TreeTrace(content=content)
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(trace.take, _within(page, run))
            if len(trace.spans) > MAX_SPANS:
                raise Problem(
                    422,
                    "trace-too-long",
                    f"the trace of run {run} has more than {MAX_SPANS} spans: ask for them in pages (limit, after) or"
                    " for those of a run below it, or let a tracer export them (docs/observability.md)",
                )
    return trace.until(now)


def _within(page: Iterable[Stored], run: str) -> list[Entry]:
    return [one.entry for one in page if is_within(one.entry.run, run)]


def tree_of_spans(
    run: str, spans: list[SpanRecord], following: int | msgspec.UnsetType | None = msgspec.UNSET
) -> TraceTree:
    """The spans in the order in which a person reads them; `following` is `after` of the next page."""
    placed = [TraceSpan(**msgspec.structs.asdict(span), depth=depth) for depth, span in in_order(spans)]
    return TraceTree(id=run, trace=trace_id(tree_of(run)), spans=placed, next=following)
