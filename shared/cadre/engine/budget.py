"""Bound a run: deadlines and budgets, checked before each model call, and the shares that children get of them.

A budget is that of a run and all runs below it. Members called together share what is left evenly, so that
a tree never goes beyond it by more than the calls in flight. What they leave over comes back with their reports, also
with that of a member which was no longer waited for.
"""

from typing import Any, TypeVar

import msgspec

from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.protocol.cards import AgentCard
from cadre.protocol.messages import ErrorInfo, Task
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of

GRACE_SECONDS = 300.0
"""The time that a kind has to leave things in order once a run's deadline or budget is used up."""

MEGABYTE = 1 << 20
"""Bytes of one, where a budget counts them."""

N = TypeVar("N", int, float)

_NO_BOUND = Budget()


def _bounds(**fields: Any) -> Budget:
    """Return a budget of these fields, which are not checked again: runs are decided with it."""
    return msgspec.structs.replace(_NO_BOUND, **fields)


def deadline_of(task: Task, spec: AgentSpec, at: float) -> float | None:
    """The earlier of what the task and the spec say."""
    own = at + spec.limits.seconds if spec.limits.seconds is not None else None
    known = [one for one in (task.deadline, own) if one is not None]
    return min(known) if known else None


def budget_of(task: Task, spec: AgentSpec) -> Budget | None:
    """Return the narrower of what the task and the spec say, field by field; what code may use is bounded always."""
    writes_code = bool(facts_of(spec).pools)
    of_code = _bounds(calls=spec.limits.calls, stored_mb=spec.limits.stored_mb) if writes_code else None
    return _narrower_budget(_narrower_budget(task.budget, spec.limits.budget), of_code)


def _narrower_budget(one: Budget | None, other: Budget | None) -> Budget | None:
    if one is None or other is None:
        return one or other
    return _bounds(
        tokens=_narrower(one.tokens, other.tokens),
        cost=_narrower(one.cost, other.cost),
        steps=_narrower(one.steps, other.steps),
        depth=_narrower(one.depth, other.depth),
        calls=_narrower(one.calls, other.calls),
        stored_mb=_narrower(one.stored_mb, other.stored_mb),
    )


def _narrower(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def gained(events: list[ev.AnyEvent]) -> Usage:
    """Return what the events add to a run's usage."""
    total = Usage()
    for event in events:
        match event:
            case ev.ModelAnswered():
                total += event.usage + Usage(model_calls=1)
            case ev.DelegateFinished() | ev.RecordIgnored():
                total += event.usage
            case ev.StepFinished():
                total += Usage(steps=1)
            case JournalEvent():
                total += event.describe().used or Usage()
    return total


def out_of_time() -> ErrorInfo:
    """The error of a run whose deadline has passed."""
    return ErrorInfo("deadline", "The run's deadline has passed.")


def over_bounds(run: Run, at: float) -> ErrorInfo | None:
    """Return the error of a run that one more model call would take beyond its deadline or budget, or None. `at` is in
    Unix seconds."""
    return out_of_time() if run.deadline is not None and at >= run.deadline else over_budget(run)


def over_budget(run: Run) -> ErrorInfo | None:
    """Return the error of a run that one more model call would take beyond its budget; None if there is room."""
    budget, used = run.budget, run.usage
    if budget is None:
        return None
    if budget.cost is not None and run.unpriced is not None:
        text = f"The cost budget cannot be kept: nobody told what {run.unpriced} costs (see CADRE_PRICES)."
        return ErrorInfo("budget", text)
    for field, spent in (("tokens", used.total_tokens), ("cost", used.cost), ("steps", used.steps)):
        limit = getattr(budget, field)
        if limit is not None and spent >= limit:
            text = f"The budget of {limit:g} {_UNITS[field]} is used up: {spent:g} were spent."
            return ErrorInfo("budget", text)
    return None


_UNITS = {"tokens": "tokens", "cost": "in cost", "steps": "steps"}


def share(run: Run, among: int) -> Budget | None:
    """Return what one of `among` members called together gets: its part of what is left, one level less deep."""
    budget = run.budget
    if budget is None:
        return None
    used = run.usage
    open_calls = (call.budget for call in run.open_calls())
    lent = [budget for budget in (*open_calls, *run.late_members.values()) if budget is not None]
    tokens = _left(budget.tokens, used.total_tokens, [one.tokens for one in lent])
    cost = _left(budget.cost, used.cost, [one.cost for one in lent])
    steps = _left(budget.steps, used.steps, [one.steps for one in lent])
    calls = _left(budget.calls, used.calls, [one.calls for one in lent])
    stored = _left(budget.stored_mb, used.stored_bytes / MEGABYTE, [one.stored_mb for one in lent])
    return _bounds(
        tokens=tokens // among if tokens is not None else None,
        cost=cost / among if cost is not None else None,
        steps=steps // among if steps is not None else None,
        depth=max(0, budget.depth - 1) if budget.depth is not None else None,
        calls=calls // among if calls is not None else None,
        stored_mb=stored / among if stored is not None else None,
    )


_CHARACTERS = 5
"""Of a text that make one token, where a model needs few: its own tokenizer is unknown, and nothing is refused for a
guess that is too high."""


def least_tokens(text: str) -> int:
    """Tokens that a text takes at the very least."""
    return len(text) // _CHARACTERS


def too_little_for(card: AgentCard, begun: ev.DelegateStarted) -> ErrorInfo | None:
    """Return why the member cannot be begun with its share of the budget: its first request alone takes more; else
    None.
    """
    lent = begun.budget.tokens if begun.budget is not None else None
    least = card.prompt_tokens + least_tokens(begun.task) if card.prompt_tokens else 0
    if lent is None or lent >= least:
        return None
    text = (
        f"{card.name!r} cannot be asked: its share of what is left of the budget is {lent} tokens, and its first"
        f" request alone takes {least} or more. Ask fewer members at once, or do the work with your own tools."
    )
    return ErrorInfo("budget", text)


def _left(limit: N | None, used: N, lent: list[N | None]) -> N | None:
    if limit is None:
        return None
    return max(limit - limit, limit - used - sum(one for one in lent if one is not None))
