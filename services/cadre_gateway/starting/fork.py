"""Starts a new run from a step of another one."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import RunSummary
from cadre.engine.fold import apply_entry
from cadre.engine.policies.passing import standing_of_fork
from cadre.journal.events import AnyEvent
from cadre.journal.run import Run
from cadre.loop.fork import ForkError, next_step, prefix_of
from cadre.ports import Clock, Stored
from cadre.protocol.messages import Fork, Origin, Task
from cadre.protocol.topology import task_id, tree_of
from cadre.spec.durations import Length
from cadre.views.run_summary import summary_of_task
from cadre_gateway.access.principal import Principal
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.body import BudgetBody, Count, after, check_length
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.starting.admission import Admission, Admitted
from cadre_gateway.starting.workspaces import FileCarrier, WorkspaceSource


class ForkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{id}/fork. What is left out is as in the run that is forked."""

    at: Count
    """The step that the new run begins with; those before it are its memory."""
    task: str | None = None
    inputs: dict[str, Any] = {}
    """Added to those of the run, or in their place."""
    max_steps: Count | None = None
    deadline: Length | None = None
    """The time from now after which the run ends. Left out: as long as the other run had from its task on."""
    budget: BudgetBody | None = None
    """The budget of the steps from `at` on; `{}` is only the agent's own. Left out: as much as the other run was given,
    in full."""
    observations: dict[str, str] = {}
    """Other outcomes for calls of the steps before, by `<step>_<index>` or call id."""

    def __post_init__(self) -> None:
        check_length("deadline", self.deadline)


class ResumeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{id}/resume."""

    steps: Count | None = None
    """The number of further steps; left out: as many as the run had."""


class Forked(NamedTuple):
    """A new run."""

    run: RunSummary
    later_files: list[str]
    """Paths of its workspace whose version at the step is not known: they are as in the other run now."""


class _Past(NamedTuple):
    run: Run
    steps: list[tuple[int, int]]
    """Of each entry of its journal the sequence, and the last step that it is about; none when the journal is gone."""

    def with_page(self, page: Iterable[Stored]) -> "_Past":
        """Return what it is after those of the entries that are the run's."""
        for seq, entry in page:
            if entry.run == self.run.id:
                apply_entry(self.run, entry)
                self.steps.append((seq, max(map(_step_of, entry.events), default=0)))
        return self


@dataclass(frozen=True)
class Forker:
    """Starts root runs that begin with the first steps of other runs."""

    lookup: RunLookup
    admission: Admission
    carrier: FileCarrier
    clock: Clock

    async def fork(
        self,
        caller: Principal,
        run: str,
        wanted: ForkBody,
        key: IdempotencyKey | None,
        traceparent: str | None,
    ) -> Forked:
        """Give the new run its files and publish its Task, for the same agent. It is for the same person if the
        caller may name people, else for the caller's own. Raises Problem, RetryableError."""
        new, user, known = await self._admitted(caller, run, key)
        if known is not None:
            return Forked(known, [])
        past = await self._past(run)
        return await self._start(past, new, user, wanted, key, traceparent)

    async def resume(
        self,
        caller: Principal,
        run: str,
        wanted: ResumeBody,
        key: IdempotencyKey | None,
        traceparent: str | None,
    ) -> Forked:
        """Start a run that goes on where another one ended without an answer, for the person that `fork` names. Raises
        Problem, RetryableError."""
        new, user, known = await self._admitted(caller, run, key)
        if known is not None:
            return Forked(known, [])
        past = await self._past(run)
        try:
            at = next_step(past.run)
        except ForkError as error:
            raise Problem(409 if error.too_early else 422, "cannot-fork", str(error)) from error
        steps = at - 1 + wanted.steps if wanted.steps is not None else None
        if steps is None and past.run.max_steps < at:
            steps = at - 1 + past.run.max_steps
        return await self._start(past, new, user, ForkBody(at=at, max_steps=steps), key, traceparent)

    async def _admitted(self, caller: Principal, run: str, key: IdempotencyKey | None) -> Admitted:
        source = await self.lookup.find(run)
        user = source.user if caller.names_users else None
        return await self.admission.admit(caller, source.agent, user, key)

    async def _start(
        self,
        past: _Past,
        new: str,
        user: str | None,
        wanted: ForkBody,
        key: IdempotencyKey | None,
        traceparent: str | None,
    ) -> Forked:
        task = msgspec.structs.replace(
            _task(past.run, new, wanted, self.clock.now()),
            # In no session.
            origin=Origin(user=user) if user else None,
            trace=trace_of(traceparent),
            request=key.digest if key is not None else "",
        )
        later = await self.carrier.carry(await self._files_at(past, wanted.at), new)
        task = msgspec.structs.replace(task, has_files=await self.carrier.has_files(new))
        await self.admission.begin(task, key)
        return Forked(summary_of_task(task), later)

    async def _past(self, run: str) -> _Past:
        tree = tree_of(run)
        past = _Past(Run(id=run, tree=tree), [])
        async with self.lookup.pages_of_tree(tree) as pages:
            async for page in pages:
                # Outside the event loop: a long run takes seconds.
                past = await asyncio.to_thread(past.with_page, page)
        return past

    async def _files_at(self, past: _Past, step: int) -> WorkspaceSource:
        """Return the workspace that the run had when it began the step, or has when it has not begun it."""
        origin = past.run.task.forks if past.run.task is not None else None
        is_own = origin is None or step >= origin.at
        if origin is not None and not is_own:
            older = await self._past(origin.run)
            if older.steps:
                return await self._files_at(older, step)
        began = (seq for seq, last in past.steps if last >= step)
        return WorkspaceSource(past.run.tree, next(began, None), is_own)


def _step_of(event: AnyEvent) -> int:
    step: int = getattr(event, "step", 0)
    return step


def _task(source: Run, run: str, wanted: ForkBody, now: float) -> Task:
    began = source.task
    if wanted.task is not None and not wanted.task.strip():
        raise invalid("task is empty: say what the agent shall do, or leave it out")
    about = Fork(
        run=source.id,
        at=wanted.at,
        observations=wanted.observations,
        delegated=began is not None
        and (began.reply_to is not None or (began.forks is not None and began.forks.delegated)),
    )
    try:
        prefix_of(source, about)
    except ForkError as error:
        raise Problem(409 if error.too_early else 422, "cannot-fork", str(error)) from error
    assert began is not None
    limit = wanted.max_steps or source.max_steps
    if wanted.at > limit:
        raise invalid(f"max_steps: run {source.id} may take {limit} steps; give at least {wanted.at}")
    return Task(
        id=task_id(run),
        tree=run,
        run=run,
        at=now,
        agent=source.agent,
        task=began.task if wanted.task is None else wanted.task,
        inputs={**began.inputs, **wanted.inputs},
        images=began.images,
        max_steps=wanted.max_steps or began.max_steps,
        forks=about,
        deadline=_deadline(began, wanted, now),
        budget=began.budget if wanted.budget is None else wanted.budget.as_budget(),
        labels=began.labels,
        standing=standing_of_fork(began, wanted.task, wanted.inputs),
    )


def _deadline(began: Task, wanted: ForkBody, now: float) -> float | None:
    if wanted.deadline is not None:
        return after("deadline", wanted.deadline, now)
    return now + (began.deadline - began.at) if began.deadline is not None else None
