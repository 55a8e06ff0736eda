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


class RefusedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message or webhook that started no run. Times are Unix seconds."""

    at: float
    id: str
    """The id of the message."""
    subject: str = ""
    """The subject of a message on the bus; "" for a webhook."""
    code: str
    """The reason: the code of a problem."""
    detail: str


class TriedTrigger(msgspec.Struct, kw_only=True):
    """The task that a trigger makes of a message."""

    task: str
    run: str | None = None
    """The run that was started with it, if one was to be."""


class TriggerView(TriggerSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A trigger as the API shows it."""

    maker: str = ""
    """Its last writer: its runs start with the writer's rights. "" where no key was asked for."""
    paused_for: str = ""
    """The reason why it starts no runs, such as `maker-revoked`; "" while it does, or if `paused`."""
    bus_subject: str = ""
    """The whole subject on the bus that it listens to."""
    refusals: list[RefusedMessage] = msgspec.field(default_factory=list)
    """The last 20 messages and webhooks that this gateway refused since it started, newest first."""


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
