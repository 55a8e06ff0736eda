"""Show one run in full: its output, the runs below it, its steps, and the services that it lacks."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from cadre.api.runs import RunDetail, RunResult, RunSummary
from cadre.engine.budget import gained
from cadre.engine.fold import apply_entry
from cadre.journal.entry import Entry
from cadre.journal.events import DelegateFinished
from cadre.journal.run import Phase, Run
from cadre.ports import Stored
from cadre.protocol.cards import Presence
from cadre.protocol.memory import MEMORY_TOOLS, RECALL
from cadre.protocol.rollout import Rollout
from cadre.protocol.usage import Usage
from cadre.service.revision import schemas_of
from cadre.spec.kinds import facts_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.views.run_summary import end_state
from cadre.views.story import Story
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of


class DetailPage(NamedTuple):
    """The page of child runs and steps to show: so many after the first `after`."""

    limit: int
    after: int = 0


class TreeState:
    """The runs of a tree as far as its entries were taken in, in stream order."""

    def __init__(self, tree: str, *, keep_steps: bool) -> None:
        self.story = Story(tree)
        self._tree = tree
        self._keep_steps = keep_steps
        self._states: dict[str, Run] = {}
        self._own_usage: dict[str, Usage] = {}
        self._ended: set[str] = set()
        self._schemas: dict[str, str] = {}
        """Of those that have ended."""

    def take(self, page: Iterable[Stored]) -> None:
        """Take in entries; one that was taken in before must not come again."""
        for seq, entry in page:
            self.story.take(seq, entry)
            own = [event for event in entry.events if not isinstance(event, DelegateFinished)]
            self._own_usage[entry.run] = self.own_usage(entry.run) + gained(own)
            # What comes behind a run's end changes nothing that is shown.
            if entry.run not in self._ended:
                self._fold(entry)

    def run(self, run: str) -> Run | None:
        """Return the run's state; None if it has no entry yet."""
        return self._states.get(run)

    def own_usage(self, run: str) -> Usage:
        """Return what the run has used without the runs below it."""
        return self._own_usage.get(run, Usage())

    def schemas(self, run: str) -> str:
        """Return the digest of the tools' schemas in the run's last toolset; empty without one."""
        state = self._states.get(run)
        if state is None or run in self._schemas:
            return self._schemas.get(run, "")
        return schemas_of(state.tools, state.spec.tools) if state.spec is not None else ""

    def _fold(self, entry: Entry) -> None:
        state = self._states.get(entry.run) or Run(id=entry.run, tree=self._tree)
        apply_entry(state, entry)
        if end_state(entry, entry.run) is not None:
            self._ended.add(entry.run)
            self._states[entry.run] = state
            self._schemas[entry.run] = self.schemas(entry.run)
            state = self._shown(state)
        self._states[entry.run] = state

    def _shown(self, ended: Run) -> Run:
        return Run(
            id=ended.id,
            tree=ended.tree,
            phase=ended.phase,
            result=ended.result,
            task=ended.task,
            deadline=ended.deadline,
            budget=ended.budget,
            revision=ended.revision,
            steps=ended.steps if self._keep_steps else [],
        )


class LiveNames:
    """Names of the agents with their revisions, tools and sandbox pools that some live service offers."""

    def __init__(self, presences: Iterable[Presence], rollouts: Iterable[Rollout] = ()) -> None:
        self.agents: set[str] = set()
        self._revisions: set[tuple[str, str]] = set()
        self._rollouts = {rollout.agent: rollout for rollout in rollouts}
        self.tools: set[str] = set()
        self.pools: set[str] = set()
        for presence in presences:
            if presence.agent is not None:
                self.agents.add(presence.agent.name)
                self._revisions.add((presence.agent.name, presence.revision))
            if presence.tool is not None:
                self.tools.add(presence.tool.name)
            if presence.sandbox is not None:
                self.pools.add(presence.sandbox.pool)

    def has_revision(self, agent: str, revision: str) -> bool:
        """Return whether some replica goes on with runs of that revision: any does, unless revisions share them."""
        owner = self._rollouts[agent].owner(revision) if revision and agent in self._rollouts else None
        return owner is None or (agent, owner.revision) in self._revisions

    def awaited_revisions(self, agent: str) -> list[str]:
        """Return the revisions that are to begin the agent's new runs, while none of them has a replica."""
        live = {revision for name, revision in self._revisions if name == agent}
        shares = self._rollouts[agent].candidates(live) if agent in self._rollouts else []
        return [share.revision for share in shares if share.revision not in live]


def missing_service(agent: str, run: Run | None, live: LiveNames) -> str | None:
    """Return `agent NAME`, `revision REV of agent NAME`, `tool NAME`, `sandbox POOL` or `memory` if the run waits for
    it and it is not served; else None.

    `run` is None for one that its agent has not taken up yet; a run that has ended waits for nothing.
    """
    if run is not None and run.phase is Phase.DONE:
        return None
    if agent not in live.agents:
        return f"agent {agent}"
    if run is None:
        awaited = live.awaited_revisions(agent)
        return f"revision {' or '.join(awaited)} of agent {agent}" if awaited else None
    if not live.has_revision(agent, run.revision):
        return f"revision {run.revision} of agent {agent}"
    if run.recalling is not None and RECALL not in live.tools:
        return "memory"
    sent = [call for call in run.open_calls() if call.opened and call.hold is None]
    for call in sent:
        if call.kind == "member" and call.name not in live.agents:
            return f"agent {call.name}"
        if call.kind == "tool" and call.name not in live.tools:
            return "memory" if call.name in MEMORY_TOOLS else f"tool {call.name}"
    if run.phase is Phase.ACTING and run.spec is not None and not run.open_calls():
        pools = facts_of(run.spec, run.decided_by).pools
        return next((f"sandbox {pool}" for pool in pools if pool not in live.pools), None)
    return None


class _View(NamedTuple):
    """The facts shown of each run of a tree."""

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
    """Return the run as its tree's journals describe it at this moment; `full` adds the steps of each run, `live` the
    services that it waits for and that do not run. With `page` the runs below have their own first page.

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
    """Return how the run ended. Raise a 404 problem, BusUnavailable."""
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
