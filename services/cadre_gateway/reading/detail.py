"""One run in full: with its output, the runs below it, and its steps."""

import asyncio
from collections.abc import Sequence

from msgspec import UNSET

from cadre.api.runs import RunDetail, RunResult, RunSummary
from cadre.protocol.cards import Presence
from cadre.telemetry.tracing.ids import trace_id
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of
from cadre_gateway.reading.tree_state import TreeState
from cadre_gateway.reading.waiting import LiveNames, missing_service


async def run_detail(
    lookup: RunLookup, run: str, full: bool, presences: Sequence[Presence] | None = None
) -> RunDetail:
    """The run as its tree's journals describe it at this moment; `full` adds the steps of each run, `presences` what
    it waits for that nobody offers.

    Raises a 404 problem, BusUnavailable.
    """
    tree = checked_tree_of(run)
    state = TreeState(tree, keep_steps=full)
    live = LiveNames(presences) if presences is not None else None
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(state.take, page)
        summary = state.index.get(tree, run)
        if summary is not None:
            return await asyncio.to_thread(_detail_of, summary, state, full, live)
    detail = _detail_of(await lookup.find(run), state, full, live)
    task = await lookup.history.task(tree, run)
    if task is not None:
        detail.deadline, detail.budget, detail.forked_from = task.deadline, task.budget, task.forks
    return detail


async def run_result(lookup: RunLookup, run: str, full: bool) -> RunResult:
    """How a run that has ended did so. Raises a 404 problem, BusUnavailable."""
    detail = await run_detail(lookup, run, full)
    result = RunResult(id=run, state=detail.state, output=detail.output, error=detail.error)
    if full:
        result.steps, result.usage, result.memory = detail.step, detail.usage, detail.memory
        result.started_at, result.ended_at = detail.started_at, detail.ended_at
    return result


def _detail_of(summary: RunSummary, tree: TreeState, full: bool, live: LiveNames | None) -> RunDetail:
    state = tree.run(summary.id)
    fields = {name: getattr(summary, name) for name in RunSummary.__struct_fields__}
    if live is not None and not summary.finished and fields["waiting_for"] is None:
        fields["waiting_for"] = missing_service(summary.agent, state, live)
    return RunDetail(
        **fields,
        trace=trace_id(summary.tree),
        output=state.result.output if state and state.result else None,
        deadline=state.deadline if state else None,
        budget=state.budget if state else None,
        forked_from=state.task.forks if state and state.task else None,
        revision=state.revision if state else "",
        own_usage=tree.own_usage(summary.id),
        children=[_detail_of(child, tree, full, live) for child in tree.index.children(summary)],
        memory=(state.steps if state else []) if full else UNSET,
    )
