"""One run in full: with its output, the runs below it, and its steps."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from cadre.api.runs import RunDetail, RunResult, RunSummary
from cadre.telemetry.tracing.ids import trace_id
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of
from cadre_gateway.reading.tree_state import TreeState
from cadre_gateway.reading.waiting import LiveNames, missing_service


class DetailPage(NamedTuple):
    """Which of the runs directly below a run, and of its steps, are told: so many behind the first `after`."""

    limit: int
    after: int = 0


class _View(NamedTuple):
    """What is told of each run of a tree."""

    tree: TreeState
    below: Mapping[str | None, list[RunSummary]]
    full: bool
    live: LiveNames | None


async def run_detail(
    lookup: RunLookup,
    run: str,
    full: bool,
    live: LiveNames | None = None,
    page: DetailPage | None = None,
) -> RunDetail:
    """The run as its tree's journals describe it at this moment; `full` adds the steps of each run, `live` what it
    waits for that nobody serves. With `page` the runs below tell their own first page.

    Raises a 404 problem, BusUnavailable.
    """
    tree = checked_tree_of(run)
    for _ in range(2):
        state = TreeState(tree, keep_steps=full)
        async with lookup.pages_of_tree(tree) as pages:
            async for entries in pages:
                await asyncio.to_thread(state.take, entries)
            view = _View(state, state.story.by_parent(), full, live)
            summary = state.story.summaries.get(run)
            if summary is not None:
                return await asyncio.to_thread(_detail_of, summary, view, page)
        found = await lookup.find(run)
        if not found.finished:
            break
        # It has begun and ended since the journals were asked, which may wait for a server to lead: they tell how now.
    detail = _detail_of(found, view, page)
    task = await lookup.history.task(tree, run)
    if task is not None:
        detail.deadline_at, detail.budget, detail.forked_from = task.deadline, task.budget, task.forks
    return detail


async def run_result(lookup: RunLookup, run: str, full: bool) -> RunResult:
    """How a run that has ended did so. Raises a 404 problem, BusUnavailable."""
    detail = await run_detail(lookup, run, full)
    result = RunResult(id=run, state=detail.state, output=detail.output, error=detail.error)
    if full:
        result.steps, result.usage, result.memory = detail.step, detail.usage, detail.memory
        result.started_at, result.ended_at = detail.started_at, detail.ended_at
    return result


def _detail_of(summary: RunSummary, view: _View, page: DetailPage | None) -> RunDetail:
    tree, full, live = view.tree, view.full, view.live
    state = tree.run(summary.id)
    children = view.below.get(summary.id, [])
    steps = state.steps if state and full else []
    following: int | UnsetType | None = UNSET
    inner = None
    if page is not None:
        end = page.after + page.limit
        following = end if max(len(children), len(steps)) > end else None
        children, steps = children[page.after : end], steps[page.after : end]
        inner = DetailPage(page.limit)
    fields = {name: getattr(summary, name) for name in RunSummary.__struct_fields__}
    if live is not None and not summary.finished:
        # What a person decides waits for the revision as well.
        lack = missing_service(summary.agent, state, live)
        if fields["waiting_for"] is None or (lack or "").startswith("revision "):
            fields["waiting_for"] = lack
    return RunDetail(
        **fields,
        schemas=tree.schemas(summary.id),
        trace=trace_id(summary.tree),
        output=state.result.output if state and state.result else None,
        deadline_at=state.deadline if state else None,
        budget=state.budget if state else None,
        forked_from=state.task.forks if state and state.task else None,
        own_usage=tree.own_usage(summary.id),
        children=[_detail_of(child, view, inner) for child in children],
        memory=steps if full else UNSET,
        next=following,
    )
