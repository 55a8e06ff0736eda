"""Schedules, triggers, notices and standing budgets as the API shows them."""

from typing import Any

import msgspec

from cadre.automation.notice import NoticeSpec
from cadre.automation.standing_budget import BudgetUse
from cadre.automation.trigger import TriggerSpec


class TickView(msgspec.Struct, kw_only=True):
    """The outcome of one tick. Times are Unix seconds."""

    tick: float
    number: int
    at: float
    """The time at which it was decided."""
    outcome: str
    """`starting`, then `started` or `failed`; `queued`, `skipped` or `missed`."""
    run: str | None = None
    detail: str = ""
    code: str = ""
    """The reason why it `failed`: the code of a problem."""


class ScheduleView(msgspec.Struct, kw_only=True):
    """A schedule as the API shows it. Times are Unix seconds."""

    name: str
    agent: str
    paused: bool
    paused_for: str = ""
    """The reason for an automatic pause, such as `maker-revoked`; "" if a person paused it."""
    maker: str = ""
    """Its last writer: its runs start with the writer's rights. "" where no key was asked for."""
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


class TriggerView(TriggerSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A trigger as the API shows it."""

    maker: str = ""
    """Its last writer: its runs start with the writer's rights. "" where no key was asked for."""
    paused_for: str = ""
    """The reason why it starts no runs, such as `maker-revoked`; "" while it does."""


class NoticeView(NoticeSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A notice as the API shows it."""

    maker: str = ""
    """Its last writer: it is sent as long as the writer may have it. "" where no key was asked for."""
    paused_for: str = ""
    """The reason why it is not sent, such as `maker-revoked`; "" while it is."""


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
    """The used share, 1 being all; the greatest one if each user has their own."""
    uses: list[BudgetUse]
    """By user where each has their own, the greatest share first; else one, or none while nothing is used."""
