"""A standing budget as people write it: what a user, agent or team may use in an hour, day, week or month."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from cadre.automation.notice import BUDGET_SHARE, Happened, Happening
from cadre.automation.schedule import zone_of
from cadre.errors import SpecError
from cadre.spec.names import check_name

EACH_USER = "*"

_HOUR_SECONDS = 3600.0

_HAPPENINGS: tuple[tuple[float, Happening], ...] = (
    (BUDGET_SHARE, "budget.standing_warning"),
    (1.0, "budget.standing_exhausted"),
)
"""The happenings of which notices are sent, each with the used share from which it applies."""


class TimeWindow(NamedTuple):
    """A time in Unix seconds, its end not included."""

    begin: float
    end: float


class BudgetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checked standing budget; without `user`, `agent` and `team` it is that of everything. Raises SpecError."""

    name: str
    window: Literal["hour", "day", "week", "month"]
    tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Input and output."""
    cost: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """In the currency of the price table."""
    user: str | None = None
    """Only runs for this user; `*`: so much for each one."""
    agent: str | None = None
    """Only the agent's own calls, wherever it works."""
    team: str | None = None
    """Only trees that begin with this agent, members included."""
    time_zone: str = "UTC"
    """IANA name, of the window's begin."""
    paused: bool = False
    """True while it refuses no run. What is used meanwhile counts."""

    def __post_init__(self) -> None:
        check_name("budget", self.name, "name")
        for key, name in (("agent", self.agent), ("team", self.team)):
            if name is not None:
                check_name("agent", name, key)
        if self.tokens is None and self.cost is None:
            raise SpecError("write one of them, or both", key="tokens, cost")
        if self.user is not None and not self.user.strip():
            raise SpecError("write a name, or * for each one", key="user")
        zone_of(self.time_zone)

    def covers(self, agent: str, team: str, user: str) -> bool:
        """Return whether what the agent uses in such a tree is of this budget; "" stands for no user."""
        return (
            self.agent in (None, agent)
            and self.team in (None, team)
            and (user != "" if self.user == EACH_USER else self.user in (None, user))
        )

    def account_of(self, user: str) -> str:
        """Return whose share it is: the user's where each one has their own, else that of all together ("")."""
        return user if self.user == EACH_USER else ""

    def share(self, tokens: int, cost: float) -> float:
        """Return the used share of what the budget bounds."""
        return max(used / limit for used, limit in ((tokens, self.tokens), (cost, self.cost)) if limit)

    def window_at(self, now: float) -> TimeWindow:
        """Return the window in which this moment lies: of whole hours, days from midnight, weeks from Monday,
        months."""
        zone = zone_of(self.time_zone)
        local = datetime.fromtimestamp(now, UTC).astimezone(zone)
        if self.window == "hour":
            begin = float(int(now) - local.minute * 60 - local.second)
            return TimeWindow(begin, begin + _HOUR_SECONDS)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if self.window == "day":
            first, days = midnight, 1
        elif self.window == "week":
            first, days = midnight - timedelta(days=local.weekday()), 7
        else:
            first, days = midnight.replace(day=1), 31
        after = first + timedelta(days=days)
        after = after.replace(day=1) if self.window == "month" else after
        return TimeWindow(first.timestamp(), after.timestamp())

    def local(self, moment: float) -> str:
        """Return a moment in the budget's time zone, to the minute."""
        zone = zone_of(self.time_zone)
        return datetime.fromtimestamp(moment, UTC).astimezone(zone).isoformat(" ", "minutes")


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A standing budget as it is kept."""

    spec: BudgetSpec
    told: list[str] = []
    """Ids of the happenings of which notices were sent in the latest window."""


class BudgetUse(msgspec.Struct, kw_only=True):
    """The usage of a budget in its present window."""

    user: str = ""
    """The user whose share it is, if each user has their own."""
    tokens: int = 0
    cost: float = 0.0
    share: float = 0.0
    """From 1 on no run begins."""


def budget_happenings(spec: BudgetSpec, window: TimeWindow, use: BudgetUse, at: float) -> Iterator[Happened]:
    """Yield the happenings of a budget with this usage; the same happening has the same id each time."""
    whose = blake2b(use.user.encode(), digest_size=6).hexdigest()
    data: dict[str, Any] = {
        "budget": msgspec.to_builtins(spec),
        "since": window.begin,
        "until": window.end,
        "use": msgspec.to_builtins(use),
    }
    for share, happening in _HAPPENINGS:
        if use.share >= share:
            identity = f"{spec.name}:{whose}:{int(window.begin)}:{happening.rpartition('_')[2]}"
            yield Happened(identity, happening, f"budget/{spec.name}", at, data)
