"""Answers about runs: found, in detail, awaited, cancelled."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from cadre.engine.budget import gained
from cadre.journal.events import DelegateFinished, Entry, RunFinished
from cadre.journal.run import Run, Step
from cadre.loop.fold import fold
from cadre.ports import Stored
from cadre.protocol.messages import Budget, Cancel, ErrorInfo, Fork, RunState, Usage
from cadre.protocol.topology import tree_of
from cadre_gateway.desk import Desk
from cadre_gateway.index.run_list import Index, RunSummary, State, of_task
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.problems import Problem, unknown_run
from cadre_gateway.runs.submit import SENDER

_RUN_ID = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]{0,511}")


class RunDetail(RunSummary, kw_only=True):
    """A run and all runs below it."""

    output: Any = None
    deadline: float | None = None
    """Unix seconds at which the run ends, whatever it has found."""
    budget: Budget | None = None
    """What the run and all runs below it may use."""
    forked_from: Fork | None = None
    """The run, and the step of it, that this one began with."""
    own_usage: Usage
    """What the run itself has used, without those below it."""
    children: list[RunDetail]
    memory: list[Step] | UnsetType = UNSET


class RunResult(msgspec.Struct, kw_only=True):
    """How a run ended; the second half only with `return_full_result`."""

    id: str
    state: State
    output: Any = None
    error: ErrorInfo | None = None
    steps: int | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    started_at: float | UnsetType = UNSET
    ended_at: float | UnsetType | None = UNSET
    memory: list[Step] | UnsetType = UNSET


def end_of(entry: Entry, run: str) -> RunState | None:
    """The state in which the run has ended with this entry; None when it goes on."""
    if entry.run != run:
        return None
    return next((event.state for event in entry.events if isinstance(event, RunFinished)), None)


async def find(desk: Desk, run: str) -> RunSummary:
    """The run's summary, also of one that is too old for the list or that no agent has taken up yet.

    Raises a 404 problem, BusUnavailable.
    """
    tree = _tree(run)
    known = desk.index.get(tree, run)
    if known is not None:
        return known
    if tree in desk.ledger.erasing:
        raise unknown_run(run)
    found = index_of(await desk.history.read_tree(tree)).get(tree, run)
    if found is not None:
        return found
    task = await desk.history.task(tree, run)
    if task is None:
        raise unknown_run(run)
    return of_task(task)


async def known_runs(desk: Desk, tree: str, *, by_now: bool = False) -> list[RunSummary]:
    """All runs of a tree; only its root when no agent has taken that up yet, [] when there is no such tree.

    `by_now`: as its journals tell at this moment, where the list might be a moment behind.
    """
    known = desk.index.tree(tree)
    if by_now or known is None:
        known = index_of(await desk.history.read_tree(tree)).tree(tree)
    if known is not None:
        return list(known.runs.values())
    task = await desk.history.task(tree, tree)
    return [of_task(task)] if task is not None else []


async def detail(desk: Desk, run: str, full: bool) -> RunDetail:
    """The run as its tree's journals tell it at this moment; `full` adds the memory of each run.

    Raises a 404 problem, BusUnavailable.
    """
    tree = _tree(run)
    stored = await read_tree(desk, tree)
    index = index_of(stored)
    summary = index.get(tree, run)
    if summary is None:
        told = _detailed(await find(desk, run), index, {}, full)
        task = await desk.history.task(tree, run)
        if task is not None:
            told.deadline, told.budget, told.forked_from = task.deadline, task.budget, task.forks
        return told
    entries: dict[str, list[Entry]] = {}
    for one in stored:
        entries.setdefault(one.entry.run, []).append(one.entry)
    states = {name: (fold(journal, name, tree), _own_usage(journal)) for name, journal in entries.items()}
    return _detailed(summary, index, states, full)


async def result(desk: Desk, run: str, full: bool) -> RunResult:
    """Of a run that has ended."""
    found = await detail(desk, run, full)
    told = RunResult(id=run, state=found.state, output=found.output, error=found.error)
    if full:
        told.steps, told.usage, told.memory = found.step, found.usage, found.memory
        told.started_at, told.ended_at = found.started_at, found.ended_at
    return told


async def wait_for_end(desk: Desk, run: str, seconds: float) -> bool:
    """Whether the run has ended, within `seconds` from now. Raises a 404 or 410 problem when there is no such run
    (any more), BusUnavailable."""
    feed: Feed[Stored] = Feed()
    deadline = time.monotonic() + seconds
    with desk.tail.listen(tree_of(run), feed.put), desk.open(tree_of(run), feed):
        if (await find(desk, run)).finished:
            return True
        while (left := deadline - time.monotonic()) > 0 and not desk.draining.is_set():
            taken = await feed.take(left)
            if any(end_of(one.entry, run) for one in taken):
                return True
            if feed.overflowed:
                feed.clear()
                if (await find(desk, run)).finished:
                    return True
            if feed.closed and not desk.draining.is_set():
                raise Problem(410, "run-erased", f"run {run} was erased while its end was waited for")
    return False


async def cancel(desk: Desk, run: str, reason: str) -> RunSummary:
    """Asks for the end of a run and of everything below it; a run that has ended is left alone."""
    summary = await find(desk, run)
    if not summary.finished:
        record = Cancel(
            id=f"{run}:cancel:{secrets.token_hex(8)}",
            tree=summary.tree,
            run=run,
            at=time.time(),
            reason=reason,
            sender=SENDER,
        )
        await desk.platform.bus.send(record, SENDER, to=summary.agent)
        await desk.platform.bus.interrupt(summary.tree, run)
    return summary


async def read_tree(desk: Desk, tree: str) -> list[Stored]:
    """At least what the tail has already told: a replica of the stream may lag behind it."""
    if tree in desk.ledger.erasing:
        return []
    known = desk.index.tree(tree)
    first, last = (known.first, known.last) if known else (0, 0)
    return await desk.history.read_tree(tree, max(0, first - 1), at_least=last)


def _tree(run: str) -> str:
    # Nothing else may become part of a subject.
    if not _RUN_ID.fullmatch(run):
        raise unknown_run(run)
    return tree_of(run)


def index_of(stored: list[Stored]) -> Index:
    index = Index(capacity=len(stored) + 1)
    for one in stored:
        index.apply(one.seq, one.entry)
    return index


def _detailed(
    summary: RunSummary, index: Index, states: dict[str, tuple[Run, Usage]], full: bool
) -> RunDetail:
    state, own = states.get(summary.id, (None, Usage()))
    fields = {name: getattr(summary, name) for name in RunSummary.__struct_fields__}
    return RunDetail(
        **fields,
        output=state.result.output if state and state.result else None,
        deadline=state.deadline if state else None,
        budget=state.budget if state else None,
        forked_from=state.task.forks if state and state.task else None,
        own_usage=own,
        children=[_detailed(child, index, states, full) for child in index.children(summary)],
        memory=(state.memory if state else []) if full else UNSET,
    )


def _own_usage(journal: list[Entry]) -> Usage:
    events = [event for entry in journal for event in entry.events]
    return gained([event for event in events if not isinstance(event, DelegateFinished)])
