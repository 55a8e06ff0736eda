"""What the gateway says of schedules and standing budgets."""

from typing import Any

import msgspec

from cadre.automation.standing_budget import BudgetUse


class TickView(msgspec.Struct, kw_only=True):
    """What became of one tick. Times are Unix seconds."""

    tick: float
    number: int
    at: float
    """When it was decided."""
    outcome: str
    """`starting`, then `started` or `failed`; `queued`, `skipped` or `missed`."""
    run: str | None = None
    detail: str = ""


class ScheduleView(msgspec.Struct, kw_only=True):
    """A schedule as the API shows it. Times are Unix seconds."""

    name: str
    agent: str
    paused: bool
    next: list[float]
    """Its next ticks, without jitter."""
    ticks: int
    started: int
    skipped: int
    missed: int
    queued: int
    last_run: str | None
    made_at: float
    spec: dict[str, Any]
    """The keys of its file, under `spec`."""
    outcomes: list[TickView]
    """Of the last ticks, newest first."""


class BudgetView(msgspec.Struct, kw_only=True):
    """A standing budget as the API shows it. Times are Unix seconds."""

    name: str
    spec: dict[str, Any]
    """The keys of its file, under `spec`."""
    since: float
    """Begin of its present window."""
    until: float
    """Its end: then the budget is whole again."""
    share: float
    """What is used of it, 1 being all; the greatest one where each user has their own."""
    uses: list[BudgetUse]
    """By user where each has their own, the greatest share first; else one, or none while nothing is used."""
