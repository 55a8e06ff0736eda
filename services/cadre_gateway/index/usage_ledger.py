"""Sum up from the journals what agents have used, by hour, of late by minute, and as totals that only grow. Pure.

The sums outlive the runs, and the totals, which Prometheus reads as counters, outlive every process. A counter that a
process holds is lost with it: in a crash loop it would stay at 1.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import NamedTuple, get_args

import msgspec
from msgspec import UNSET

from cadre.api.directory import TIME_STEP, Dimension, Figures, FiguresRow
from cadre.api.runs import RunSummary
from cadre.errors import RunIndexBuilding
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelLost
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.protocol.messages import RunState
from cadre.recent import Recent
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample

MINUTE_SECONDS = 60
HOUR_SECONDS = 3600
DAY_SECONDS = 86_400

MAX_CELLS = 50_000
"""Sums that are kept at most. Beyond, the oldest days lose first their sessions, then their hours, then their users."""

KEEP_MINUTES_SECONDS = 2 * HOUR_SECONDS
"""Sums by the minute reach back so far from the newest."""

MAX_MINUTE_CELLS = 5_000
"""Sums by the minute that are kept at most. Beyond, the oldest minutes go."""

KEEP_HOURS_DAYS = 40
"""The sums of older days are those of whole days, without sessions."""

KEEP_DAYS = 400
"""Older days are forgotten."""

_MAX_OPEN_TOOLS = 10_000
"""Maximum number of unanswered tool calls whose tool is remembered, so that a timeout can be counted for that tool."""

_ROOM_SHARE = 0.9
"""Once there are too many sums, room is made down to this share."""

_METRICS = {metric.name: metric for metric in (names.RUNS_FINISHED, names.COST, names.ATTEMPTS_LOST)}


class Detail(IntEnum):
    """The detail that the sums of a day have lost; each step includes those before."""

    FULL = 0
    NO_SESSIONS = 1
    WHOLE_DAYS = 2
    NO_USERS = 3
    NOTHING = 4


class LedgerKey(NamedTuple):
    """The key of one sum."""

    hour: int
    """Its begin in Unix seconds; that of the day where hours are not kept apart, that of the minute for a sum by the
    minute."""
    team: str
    agent: str
    user: str
    session: str
    model: str
    tool: str

    @property
    def day(self) -> int:
        """The begin of the day (UTC) in Unix seconds."""
        return self.hour - self.hour % DAY_SECONDS

    def with_detail(self, detail: Detail) -> "LedgerKey":
        """Return the key under which the same is summed up in less detail."""
        return LedgerKey(
            self.day if detail >= Detail.WHOLE_DAYS else self.hour,
            self.team,
            self.agent,
            "" if detail >= Detail.NO_USERS else self.user,
            "" if detail >= Detail.NO_SESSIONS else self.session,
            self.model,
            self.tool,
        )


class TotalKey(NamedTuple):
    """The key of one count."""

    metric: str
    """Its name in `cadre.telemetry.metrics.names`."""
    agent: str
    label: str = ""
    """The way in which runs ended, or the model."""


class Totals:
    """The counts since the first run."""

    def __init__(self, saved: Iterable[tuple[TotalKey, float]]) -> None:
        self._counts = dict(saved)

    def to_saved(self) -> list[tuple[TotalKey, float]]:
        """Return all of it, for the constructor."""
        return list(self._counts.items())

    def add(self, entry: Entry) -> None:
        """Count the entry; each entry is to be counted once."""
        if entry.arrived is not None and entry.arrived.type == ModelLost.__name__:
            self._count(TotalKey(names.ATTEMPTS_LOST.name, entry.agent), 1)
        for event in entry.events:
            match event:
                case ev.RunFinished(state=state):
                    self._count(TotalKey(names.RUNS_FINISHED.name, entry.agent, state), 1)
                case ev.ModelAnswered(usage=usage) | ev.RecordIgnored(usage=usage) if usage.cost:
                    self._count(TotalKey(names.COST.name, entry.agent, event.model), usage.cost)

    def begin_cost(self, agent: str, models: Iterable[str]) -> None:
        """Have the cost of models whose price is known begin with 0; it stands there when nothing serves the agent any
        more, too: what is sent to it next starts a replica, and the first cost comes at once."""
        for model in models:
            self._counts.setdefault(TotalKey(names.COST.name, agent, model), 0.0)

    def samples(self, agents: Iterable[str]) -> list[Sample]:
        """Return the counts as they are; those of live agents begin with 0, so that their first increase is one."""
        counts = {key: 0.0 for agent in agents for key in _first_keys(agent)} | self._counts
        return [Sample(_METRICS[key.metric], count, _attributes(key)) for key, count in counts.items()]

    def _count(self, key: TotalKey, value: float) -> None:
        self._counts[key] = self._counts.get(key, 0.0) + value


def _first_keys(agent: str) -> list[TotalKey]:
    ends = [TotalKey(names.RUNS_FINISHED.name, agent, state) for state in get_args(RunState)]
    return [*ends, TotalKey(names.ATTEMPTS_LOST.name, agent)]


def _attributes(key: TotalKey) -> dict[str, str]:
    label = {names.RUNS_FINISHED.name: names.STATE, names.COST.name: names.MODEL}.get(key.metric)
    return {names.AGENT: key.agent} | ({label: key.label} if label else {})


class SavedLedger(msgspec.Struct, kw_only=True):
    """A ledger as it is saved."""

    positions: list[int]
    sums: list[tuple[LedgerKey, Figures]] = []
    details: dict[int, int] = {}
    open_tools: dict[str, str] = {}
    totals: list[tuple[TotalKey, float]] = []
    minutes: list[tuple[LedgerKey, Figures]] = []


class MinuteSums:
    """The sums of the last two hours by the minute, in addition to those of whole hours."""

    def __init__(self, saved: Iterable[tuple[LedgerKey, Figures]], max_cells: int = MAX_MINUTE_CELLS) -> None:
        self._minutes: dict[int, dict[LedgerKey, Figures]] = {}
        self._size = 0
        self._newest = 0
        self._max_cells = max_cells
        for key, sums in saved:
            self.add(key, sums)

    def add(self, key: LedgerKey, sums: Figures) -> None:
        """Add to the sum of the minute; `sums` are not kept."""
        if key.hour > self._newest:
            self._newest = key.hour
            self._forget([minute for minute in self._minutes if minute <= self._oldest])
        if key.hour <= self._oldest:
            return
        minute = self._minutes.setdefault(key.hour, {})
        if key not in minute:
            minute[key] = Figures()
            self._size += 1
        minute[key].add(sums)
        while self._size > self._max_cells and len(self._minutes) > 1:
            self._forget([min(self._minutes)])

    def cells(self, since: float, until: float) -> list[tuple[LedgerKey, Figures]]:
        """Return the sums of the minutes that begin in the time."""
        return [cell for minute, cells in self._minutes.items() if since <= minute < until for cell in cells.items()]

    @property
    def _oldest(self) -> int:
        return self._newest - KEEP_MINUTES_SECONDS

    def _forget(self, minutes: Iterable[int]) -> None:
        for minute in minutes:
            self._size -= len(self._minutes.pop(minute))


class UsageLedger:
    """Counts each entry once: `positions` has the sequence of the last one of each shard that is in the sums."""

    def __init__(self, saved: SavedLedger, max_cells: int = MAX_CELLS) -> None:
        self.positions = saved.positions
        self.is_current = True
        """True if it has everything that the journals held when this process began to read them."""
        self.listeners: list[Callable[[LedgerKey, Figures], None]] = []
        """Called with what each model call adds."""
        self._days: dict[int, dict[LedgerKey, Figures]] = {}
        self._details = {day: Detail(detail) for day, detail in saved.details.items()}
        self._open_tools = Recent[str, str](_MAX_OPEN_TOOLS)
        self._open_tools.update(saved.open_tools)
        self.totals = Totals(saved.totals)
        self._minutes = MinuteSums(saved.minutes)
        self._size = 0
        self._max_cells = max_cells
        self._newest = 0
        for key, sums in saved.sums:
            self._put(key, sums)

    def __len__(self) -> int:
        return self._size

    def check_current(self) -> None:
        """Raise RunIndexBuilding as long as it lacks what was used of late."""
        if not self.is_current:
            raise RunIndexBuilding(
                "this gateway has not read all journals yet, and does not know what was used of late: try again"
            )

    def to_saved(self) -> SavedLedger:
        """Return all of it, to be saved and handed to the constructor later."""
        return SavedLedger(
            positions=list(self.positions),
            sums=[cell for day in self._days.values() for cell in day.items()],
            details={day: int(detail) for day, detail in self._details.items()},
            open_tools=dict(self._open_tools),
            totals=self.totals.to_saved(),
            minutes=self._minutes.cells(0, float("inf")),
        )

    def grow(self, shards: int) -> None:
        """Take note that there are so many shards; nothing of the new ones is counted."""
        self.positions += [0] * (shards - len(self.positions))

    def has(self, shard: int, seq: int) -> bool:
        """Return whether the entry at that sequence of the shard is counted."""
        return seq <= self.positions[shard]

    def add(self, shard: int, seq: int, at: float, entry: Entry, root: RunSummary | None) -> None:
        """Count the entry at `seq`, which was stored at `at`, unless it is counted; `root` is the root of its tree."""
        if self.has(shard, seq):
            return
        self.positions[shard] = seq
        self.totals.add(entry)
        for event in entry.events:
            if (found := self._counted(entry, event)) is not None:
                sums, model, tool = found
                if sums.runs and root is not None and root.id == entry.run and root.started_at:
                    sums.times = {_time_key(at - root.started_at): sums.runs}
                key = LedgerKey(
                    int(at // HOUR_SECONDS) * HOUR_SECONDS,
                    root.agent if root is not None else "",
                    entry.agent,
                    root.user or "" if root is not None else "",
                    root.session or "" if root is not None else "",
                    model,
                    tool,
                )
                self._minutes.add(key._replace(hour=int(at // MINUTE_SECONDS) * MINUTE_SECONDS), sums)
                self._count(key, sums)

    def rows(
        self,
        since: float,
        until: float,
        by: Sequence[Dimension],
        only: Mapping[str, str],
        *,
        of_minutes: bool = False,
    ) -> list[FiguresRow]:
        """Return the sums of the hours that begin in the time, or `of_minutes` those of the minutes, in the order of
        what they are taken by; `only` those of these values."""
        found: dict[tuple[str, ...], FiguresRow] = {}
        for key, sums in self._minutes.cells(since, until) if of_minutes else self._cells(since, until):
            if any(getattr(key, name) != value for name, value in only.items()):
                continue
            values = tuple(_SHOWN[name](key) if name in _SHOWN else str(getattr(key, name)) for name in by)
            row = found.get(values)
            if row is None:
                row = found[values] = msgspec.convert(dict(zip(by, values, strict=True)), FiguresRow)
            Figures.add(row, sums)
        for row in found.values():
            row.cost = round(row.cost, 9)  # the order of the shards does not show in the last digits
            row.p50_seconds, row.p95_seconds = row.seconds_of(0.5), row.seconds_of(0.95)
            row.times = UNSET
        return [found[values] for values in sorted(found)]

    def spending(self, since: float) -> list[tuple[LedgerKey, Figures]]:
        """Return what model calls have added in the hours that have not ended at `since`, and later."""
        return [cell for cell in self._cells(since - since % HOUR_SECONDS, float("inf")) if cell[1].model_calls]

    def _cells(self, since: float, until: float) -> list[tuple[LedgerKey, Figures]]:
        return [
            (key, sums)
            for day, cells in self._days.items()
            if since - DAY_SECONDS < day < until
            for key, sums in cells.items()
            if since <= key.hour < until
        ]

    def _counted(self, entry: Entry, event: AnyEvent) -> tuple[Figures, str, str] | None:
        """Return what the event adds, and its model or tool."""
        match event:
            case ev.RecordIgnored(usage=usage) if not usage.model_calls:
                return None
            case ev.ModelAnswered(usage=usage) | ev.RecordIgnored(usage=usage):
                sums = Figures(
                    model_calls=1,
                    unpriced_calls=int(event.unpriced),
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cost=usage.cost,
                )
                return sums, event.model, ""
            case ev.ToolCalled():
                self._open_tools[event.call] = event.tool
            case ev.ToolAnswered():
                self._open_tools.pop(event.call, None)
                return _of_tool(event.error is not None), "", event.tool
            case ev.CallTimedOut():
                tool = self._open_tools.pop(event.call, None)
                return (_of_tool(True), "", tool) if tool is not None else None
            case ev.RunFinished(state=state):
                return Figures(runs=1, failed=int(state not in ("success", "cancelled"))), "", ""
            case _ if not isinstance(event, ev.CommonEvent):
                done = next((work for work in event.describe().work if work.tool and work.is_over), None)
                return (_of_tool(done.error is not None), "", done.tool) if done is not None else None
        return None

    def _count(self, key: LedgerKey, sums: Figures) -> None:
        if key.day > self._newest:
            self._newest = key.day
            self._age()
        if key.day <= self._newest - KEEP_DAYS * DAY_SECONDS:
            return
        self._put(key.with_detail(self._details.get(key.day, Detail.FULL)), sums)
        if self._size > self._max_cells:
            self._make_room()
        if sums.model_calls:
            for listener in self.listeners:
                listener(key, sums)

    def _put(self, key: LedgerKey, sums: Figures) -> None:
        day = self._days.setdefault(key.day, {})
        self._newest = max(self._newest, key.day)
        if key in day:
            day[key].add(sums)
        else:
            day[key] = sums
            self._size += 1

    def _age(self) -> None:
        for day in list(self._days):
            if day <= self._newest - KEEP_DAYS * DAY_SECONDS:
                self._reduce(day, Detail.NOTHING)
            elif day <= self._newest - KEEP_HOURS_DAYS * DAY_SECONDS:
                self._reduce(day, Detail.WHOLE_DAYS)

    def _make_room(self) -> None:
        for detail in (Detail.NO_SESSIONS, Detail.WHOLE_DAYS, Detail.NO_USERS, Detail.NOTHING):
            for day in sorted(self._days):
                if self._size <= self._max_cells * _ROOM_SHARE:
                    return
                if detail < Detail.NOTHING or day < self._newest:
                    self._reduce(day, detail)

    def _reduce(self, day: int, detail: Detail) -> None:
        if self._details.get(day, Detail.FULL) >= detail:
            return
        cells = self._days.pop(day)
        self._size -= len(cells)
        if detail is Detail.NOTHING:
            self._details.pop(day, None)
            return
        self._details[day] = detail
        for key, sums in cells.items():
            self._put(key.with_detail(detail), sums)


def _of_tool(failed: bool) -> Figures:
    return Figures(tool_calls=1, tool_failures=int(failed))


def _day(key: LedgerKey) -> str:
    return datetime.fromtimestamp(key.day, UTC).date().isoformat()


def _minute(key: LedgerKey) -> str:
    return datetime.fromtimestamp(key.hour, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _hour(key: LedgerKey) -> str:
    return datetime.fromtimestamp(key.hour - key.hour % HOUR_SECONDS, UTC).strftime("%Y-%m-%dT%H:%MZ")


_SHOWN: dict[Dimension, Callable[[LedgerKey], str]] = {"day": _day, "hour": _hour, "minute": _minute}


def _time_key(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, 0.001), TIME_STEP))
