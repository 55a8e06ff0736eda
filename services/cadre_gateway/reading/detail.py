"""One run in full: with its output, the runs below it, and its steps."""

from collections.abc import Sequence

from msgspec import UNSET

from cadre.api.runs import RunDetail, RunResult, RunSummary
from cadre.engine.budget import gained
from cadre.journal.entry import Entry
from cadre.journal.events import DelegateFinished
from cadre.journal.run import Run
from cadre.loop.fold import fold
from cadre.protocol.cards import Presence
from cadre.protocol.messages import Usage
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of, index_of
from cadre_gateway.reading.waiting import LiveNames, missing_service


async def run_detail(
    lookup: RunLookup, run: str, full: bool, presences: Sequence[Presence] | None = None
) -> RunDetail:
    """The run as its tree's journals describe it at this moment; `full` adds the steps of each run, `presences` what
    it waits for that nobody offers.

    Raises a 404 problem, BusUnavailable.
    """
    tree = checked_tree_of(run)
    stored = await lookup.entries_of_tree(tree)
    index = index_of(stored)
    live = LiveNames(presences) if presences is not None else None
    summary = index.get(tree, run)
    if summary is None:
        detail = _detail_of(await lookup.find(run), index, {}, full, live)
        task = await lookup.history.task(tree, run)
        if task is not None:
            detail.deadline, detail.budget, detail.forked_from = task.deadline, task.budget, task.forks
        return detail
    journals: dict[str, list[Entry]] = {}
    for one in stored:
        journals.setdefault(one.entry.run, []).append(one.entry)
    states = {name: (fold(journal, name, tree), _own_usage(journal)) for name, journal in journals.items()}
    return _detail_of(summary, index, states, full, live)


async def run_result(lookup: RunLookup, run: str, full: bool) -> RunResult:
    """How a run that has ended did so. Raises a 404 problem, BusUnavailable."""
    detail = await run_detail(lookup, run, full)
    result = RunResult(id=run, state=detail.state, output=detail.output, error=detail.error)
    if full:
        result.steps, result.usage, result.memory = detail.step, detail.usage, detail.memory
        result.started_at, result.ended_at = detail.started_at, detail.ended_at
    return result


def _detail_of(
    summary: RunSummary,
    index: RunIndex,
    states: dict[str, tuple[Run, Usage]],
    full: bool,
    live: LiveNames | None,
) -> RunDetail:
    state, own = states.get(summary.id, (None, Usage()))
    fields = {name: getattr(summary, name) for name in RunSummary.__struct_fields__}
    if live is not None and not summary.finished and fields["waiting_for"] is None:
        fields["waiting_for"] = missing_service(summary.agent, state, live)
    return RunDetail(
        **fields,
        output=state.result.output if state and state.result else None,
        deadline=state.deadline if state else None,
        budget=state.budget if state else None,
        forked_from=state.task.forks if state and state.task else None,
        revision=state.revision if state else "",
        own_usage=own,
        children=[_detail_of(child, index, states, full, live) for child in index.children(summary)],
        memory=(state.steps if state else []) if full else UNSET,
    )


def _own_usage(journal: list[Entry]) -> Usage:
    events = [event for entry in journal for event in entry.events]
    return gained([event for event in events if not isinstance(event, DelegateFinished)])
