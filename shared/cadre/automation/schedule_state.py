"""Compute the ticks of a schedule, with daylight saving time, and decide what happens to it when they are due. Pure."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Literal

import msgspec

from cadre.automation.schedule import ScheduleSpec, render, zone_of
from cadre.errors import SpecError
from cadre.protocol.access import NO_MAKER, Maker
from cadre.protocol.topology import run_id_of
from cadre.spec.durations import checked_seconds

LATE_SECONDS = 60.0
"""A tick that is handled within so many seconds was not missed."""

RECHECK_SECONDS = 5.0
"""While ticks are queued it is looked so often whether the run before them has ended."""

MAX_QUEUED = 1000
"""A tick that finds so many queued is skipped."""

MAX_STARTS = 100
"""So many missed ticks are made up for at most, the newest."""

_KEPT_OUTCOMES = 50
_MAX_COUNTED = 10_000
"""Missed ticks are counted up to here one by one; beyond it they are passed over."""

_TIMES = ("every", "cron", "time_zone", "start", "end", "count")

TickResult = Literal["started", "queued", "skipped", "missed", "failed"]


class QueuedTick(msgspec.Struct, frozen=True):
    """A tick that waits for the run before it to end."""

    tick: float
    number: int


class OwedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a tick, a person or a message starts."""

    run: str
    owner: str
    """The owner of `key`: `schedule NAME SALT`, `by-hand NAME SALT` or `trigger NAME SALT`, which no caller can be."""
    key: str
    """The key from which the run's id follows, with the agent and the owner."""
    starter: Maker | None = None
    """The person who starts it by hand, with their rights; None: it starts with its maker's rights."""
    agent: str
    task: str
    tick: float


class TickOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a tick. Times are Unix seconds."""

    tick: float
    number: int
    at: float
    outcome: TickResult
    run: str | None = None
    detail: str = ""
    code: str = ""
    """The reason why it `failed`: the code of a problem."""


class ScheduleState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A schedule with all that is remembered of it. Times are Unix seconds.

    An unknown field makes it unreadable: a version that writes it back must not lose what a newer one has added.
    """

    spec: ScheduleSpec
    made_at: float
    maker: Maker = NO_MAKER
    """Its last writer: its runs start with the writer's rights."""
    salt: str = ""
    """Random, chosen when the schedule is made: no run file that is imported can have the id of a run to come."""
    next_at: float | None
    """The next tick; None when there will be none."""
    paused: bool = False
    paused_for: str = ""
    """The reason for an automatic pause: a code such as `maker-revoked`."""
    ticks: int = 0
    """The number of ticks so far, regardless of their outcome."""
    started: int = 0
    """Runs that were started; those of `starts` are not among them."""
    skipped: int = 0
    missed: int = 0
    """Ticks that came too late and were not made up for."""
    last_run: str | None = None
    queued: list[QueuedTick] = []
    starts: list[OwedStart] = []
    """Runs that are decided and perhaps not started yet."""
    cancels: list[str] = []
    """Runs that are to be cancelled first."""
    given_up: list[float] = []
    """Ticks that become dead letters: the work for them ended the process that did it, again and again."""
    outcomes: list[TickOutcome] = []
    """Of the last ticks, newest last."""

    @property
    def is_owed(self) -> bool:
        """Return whether a decision is written down that may not be carried out yet."""
        return bool(self.starts or self.cancels or self.given_up)

    def due_at(self) -> float | None:
        """Return when its next tick is handled, jitter included; None in a pause and when none is left."""
        return None if self.paused or self.next_at is None else jittered(self.spec, self.next_at)

    def is_due(self, now: float, busy: bool) -> bool:
        """Return whether there is something to decide; `busy` says whether its last run still goes on."""
        due = self.due_at()
        return (due is not None and due <= now) or bool(self.queued and not busy and not self.paused)

    def wake_at(self, now: float) -> float | None:
        """Return when somebody has to look at it again; None when only a person can change something."""
        found = [] if (due := self.due_at()) is None else [due]
        if self.queued and not self.paused:
            found.append(now + RECHECK_SECONDS)
        return min(found, default=None)

    def upcoming(self, limit: int) -> list[float]:
        """Return the next ticks without jitter, as they would be if it were not paused."""
        if self.next_at is None:
            return []
        left = None if self.spec.count is None else self.spec.count - self.ticks
        later = next_ticks(self.spec, self.next_at, self.made_at, limit, left)
        return [self.next_at, *later][: limit if left is None else min(limit, left)]


def new_schedule(spec: ScheduleSpec, now: float, maker: Maker = NO_MAKER, salt: str = "") -> ScheduleState:
    """Return the state of a schedule that is made now. `salt` is random: see `ScheduleState`."""
    first = first_tick(spec, now)
    return ScheduleState(spec=spec, made_at=now, maker=maker, salt=salt, next_at=first, paused=spec.paused)


def taken_over(state: ScheduleState, maker: Maker, now: float) -> ScheduleState:
    """Return the state once the maker answers for it: a pause for want of one ends."""
    state = msgspec.structs.replace(state, maker=maker)
    return paused(state, False, now) if state.paused_for else state


def changed(state: ScheduleState, spec: ScheduleSpec, now: float) -> ScheduleState:
    """Return the state once its specification is replaced: it goes on from now, and what it did is remembered."""
    if spec == state.spec:
        return state
    paused = spec.paused if spec.paused != state.spec.paused else state.paused
    state = (
        msgspec.structs.replace(state, paused=paused, spec=spec)
        if _same_times(state.spec, spec)
        else (
            msgspec.structs.replace(
                state, paused=paused, spec=spec, made_at=now, next_at=first_tick(spec, now), queued=[]
            )
        )
    )
    if spec.count is not None and state.ticks >= spec.count:
        state.next_at = None
    return state


def _same_times(one: ScheduleSpec, other: ScheduleSpec) -> bool:
    """Return whether two specifications have the same ticks."""
    return all(getattr(one, field) == getattr(other, field) for field in _TIMES)


def paused(state: ScheduleState, pause: bool, now: float, code: str = "") -> ScheduleState:
    """Return the state in a pause or out of it: ticks of a pause do not come, but for the one of a one-time schedule.
    `code` says why it pauses without a person's doing."""
    state = msgspec.structs.replace(state, paused=pause, paused_for=code)
    if not pause and state.next_at is not None and not state.spec.is_one_time:
        state.next_at = next(ticks_after(state.spec, max(now, state.next_at - 0.001), state.made_at), None)
    return state


def settled(state: ScheduleState) -> ScheduleState:
    """Return the state once what it owes is done; its starts count as runs that were started."""
    return msgspec.structs.replace(state, started=state.started + len(state.starts), starts=[], cancels=[], given_up=[])


def started_by_hand(state: ScheduleState, start: OwedStart, now: float) -> ScheduleState:
    """Return the state once a person starts a run of the schedule: it becomes the last run, and does not count as a
    tick. The same request, sent again, changes nothing unless its run could not be started before."""
    known = [one for one in state.outcomes if one.run == start.run]
    if any(one.outcome != "failed" for one in known):
        return state
    noted = TickOutcome(tick=start.tick, number=state.ticks, at=now, outcome="started", run=start.run, detail="by hand")
    return msgspec.structs.replace(
        state,
        starts=[*state.starts, start],
        last_run=start.run,
        outcomes=[*(one for one in state.outcomes if one not in known), noted][-_KEPT_OUTCOMES:],
    )


def begun_as(state: ScheduleState, start: OwedStart, run: str) -> ScheduleState:
    """Return the state once a run that was decided has begun under this id."""
    if run == start.run:
        return state
    outcomes = [msgspec.structs.replace(one, run=run) if one.run == start.run else one for one in state.outcomes]
    last_run = run if state.last_run == start.run else state.last_run
    return msgspec.structs.replace(state, outcomes=outcomes, last_run=last_run)


def refused(state: ScheduleState, start: OwedStart, why: str, code: str) -> ScheduleState:
    """Return the state once a run that was decided turned out not to be startable."""
    outcomes = [
        msgspec.structs.replace(one, outcome="failed", detail=why, code=code) if one.run == start.run else one
        for one in state.outcomes
    ]
    starts = [one for one in state.starts if one.run != start.run]
    return msgspec.structs.replace(state, starts=starts, outcomes=outcomes)


def tried_again(state: ScheduleState, tick: float) -> ScheduleState | None:
    """Return the state in which a tick that failed waits to start its run again; None when it did not fail, or nothing
    is known of it any more."""
    failed = [one for one in state.outcomes if one.tick == tick and one.outcome == "failed"]
    if not failed:
        return None
    outcomes = [one for one in state.outcomes if one not in failed]
    queued = [QueuedTick(tick, failed[0].number), *state.queued]
    return msgspec.structs.replace(state, outcomes=outcomes, queued=queued)


def owed_start(
    state: ScheduleState, tick: float, number: int, by_hand: str | None = None, starter: Maker | None = None
) -> OwedStart:
    """Return the run that a tick starts, or that `starter` starts by hand with this key. Raise SpecError when its task
    cannot be rendered."""
    spec = state.spec
    values = {"tick": spec.local(tick), "count": number, "schedule": spec.name}
    owner = f"{'schedule' if by_hand is None else 'by-hand'} {spec.name} {state.salt}"
    key = f"{tick:.3f}" if by_hand is None else by_hand
    return OwedStart(
        run=run_id_of(spec.agent, owner, key),
        owner=owner,
        key=key,
        starter=starter,
        agent=spec.agent,
        task=render("task", spec.task, values),
        tick=tick,
    )


def decide(state: ScheduleState, now: float, busy: bool, giving_up: str = "") -> ScheduleState:
    """Return the state after all ticks that are due by `now`; `busy` says whether its last run still goes on.

    With `giving_up` the ticks that would start a run fail, for that reason: nothing is rendered. The same state comes
    back when nothing is due.
    """
    decision = _Decision(state, now, busy, giving_up)
    decision.take_queued()
    if (due := state.due_at()) is not None and due <= now:
        decision.take_due()
    return decision.state if decision.is_changed else state


class _Decision:
    """One decision in the making."""

    def __init__(self, state: ScheduleState, now: float, busy: bool, giving_up: str) -> None:
        self.state = msgspec.structs.replace(
            state,
            queued=list(state.queued),
            starts=list(state.starts),
            cancels=list(state.cancels),
            given_up=list(state.given_up),
        )
        self.is_changed = False
        self._now = now
        self._busy = busy
        self._giving_up = giving_up

    def take_queued(self) -> None:
        """Start the first queued tick unless a run goes on."""
        while self.state.queued and not self._busy and not self.state.paused:
            first = self.state.queued.pop(0)
            self._start(first.tick, first.number)

    def take_due(self) -> None:
        """Decide each tick that is due, the missed ones by their policy."""
        state, spec = self.state, self.state.spec
        due = self._due_ticks()
        number = state.ticks
        missed = [tick for tick in due if self._now - jittered(spec, tick) > LATE_SECONDS]
        lost = set(missed) - self._made_up(missed)
        last = max((tick for tick in due if tick not in lost), default=None)
        for tick in due:
            number += 1
            if tick in lost:
                state.missed += 1
                self._note(tick, number, "missed", detail=f"came {self._now - tick:.0f} s late")
            elif spec.overlap == "cancel" and tick != last:
                self._skip(tick, number, "the next tick came at once")
            else:
                self._take(tick, number)
        state.ticks = number
        is_over = spec.count is not None and number >= spec.count
        state.next_at = None if is_over else next(ticks_after(spec, due[-1], state.made_at), None)
        self.is_changed = True

    def _due_ticks(self) -> list[float]:
        state, spec = self.state, self.state.spec
        assert state.next_at is not None
        left = None if spec.count is None else spec.count - state.ticks
        most = _MAX_COUNTED if left is None else min(_MAX_COUNTED, left)
        later = ticks_after(spec, state.next_at, state.made_at)
        due = [state.next_at]
        for tick in islice(later, most - 1):
            if jittered(spec, tick) > self._now:
                return due
            due.append(tick)
        if left is None and len(due) == _MAX_COUNTED:
            # Too many to count: those in between are skipped.
            window = checked_seconds("window", spec.window)
            recent = ticks_after(spec, max(due[-1], self._now - window), state.made_at)
            due += [t for t in islice(recent, _MAX_COUNTED) if jittered(spec, t) <= self._now]
        return due

    def _made_up(self, missed: list[float]) -> set[float]:
        spec = self.state.spec
        since = self._now - checked_seconds("window", spec.window)
        recent = [tick for tick in missed if tick >= since]
        match spec.missed:
            case "skip":
                return set()
            case "one":
                return set(recent[-1:])
            case "all":
                return set(recent[-MAX_STARTS:])

    def _take(self, tick: float, number: int) -> None:
        state = self.state
        overlap = state.spec.overlap
        if not self._busy or overlap == "allow":
            self._start(tick, number)
        elif overlap == "cancel":
            if state.last_run is not None:
                state.cancels.append(state.last_run)
            self._start(tick, number)
        elif overlap == "queue" and len(state.queued) < MAX_QUEUED:
            state.queued.append(QueuedTick(tick, number))
            self._note(tick, number, "queued")
        else:
            self._skip(tick, number, f"run {state.last_run} goes on")

    def _skip(self, tick: float, number: int, why: str) -> None:
        self.state.skipped += 1
        self._note(tick, number, "skipped", detail=why)

    def _start(self, tick: float, number: int) -> None:
        state = self.state
        self.is_changed = True
        if self._giving_up:
            state.given_up.append(tick)
            self._busy = True  # the others keep their turns
            self._note(tick, number, "failed", detail=self._giving_up)
            return
        try:
            start = owed_start(state, tick, number)
        except SpecError as error:
            self._note(tick, number, "failed", detail=str(error))
            return
        state.starts.append(start)
        state.last_run = start.run
        self._busy = True
        self._note(tick, number, "started", run=start.run)

    def _note(self, tick: float, number: int, outcome: TickResult, run: str | None = None, detail: str = "") -> None:
        noted = TickOutcome(tick=tick, number=number, at=self._now, outcome=outcome, run=run, detail=detail)
        self.state.outcomes = [*self.state.outcomes, noted][-_KEPT_OUTCOMES:]


def ticks_after(spec: ScheduleSpec, after: float, anchor: float) -> Iterator[float]:
    """Yield the schedule's ticks later than `after`, in order; `anchor` is when the schedule was made.

    Its end counts, its `count` does not: that needs to know how many there were.
    """
    end = spec.unix(spec.end) if spec.end is not None else math.inf
    start = spec.unix(spec.start) if spec.start is not None else None
    for tick in _endless(spec, after, anchor, start):
        if tick > end:
            return
        yield tick


def first_tick(spec: ScheduleSpec, now: float) -> float | None:
    """Return the first tick of a schedule that is made now; None when none is left.

    The single tick of a one-time schedule is its first one also when it is past: what is missed is for its policy.
    """
    if spec.is_one_time:
        return next(ticks_after(spec, -math.inf, now), None)
    return next(ticks_after(spec, now, now), None)


def next_ticks(spec: ScheduleSpec, after: float, anchor: float, limit: int, left: int | None) -> list[float]:
    """At most `limit` ticks later than `after`, and no more than are `left` of the schedule's count."""
    return list(islice(ticks_after(spec, after, anchor), limit if left is None else min(limit, left)))


def jittered(spec: ScheduleSpec, tick: float) -> float:
    """Return the time at which the tick is handled, in Unix seconds: later by a share of the
    jitter that follows from the schedule's name and the tick."""
    jitter = checked_seconds("jitter", spec.jitter)
    if not jitter:
        return tick
    digest = blake2b(f"{spec.name}\n{tick:.3f}".encode(), digest_size=8).digest()
    return tick + jitter * int.from_bytes(digest, "big") / 2**64


def _endless(spec: ScheduleSpec, after: float, anchor: float, start: float | None) -> Iterator[float]:
    if spec.cron is not None:
        yield from _cron(spec, after if start is None else max(after, start - 1.0))
    elif spec.interval is not None:
        yield from _every(spec.interval, after, anchor if start is None else start, first=start is not None)
    elif start is not None and start > after:
        yield start


def _every(interval: float, after: float, anchor: float, *, first: bool) -> Iterator[float]:
    """Yield the moments anchor, anchor + interval, …; the anchor itself is one of them only with `first`."""
    number = max(0 if first else 1, math.floor((after - anchor) / interval) if after > anchor else 0)
    while True:
        tick = round(anchor + number * interval, 3)
        if tick > after:
            yield tick
        number += 1


def _cron(spec: ScheduleSpec, after: float) -> Iterator[float]:
    from cronsim import CronSim

    moment = datetime.fromtimestamp(after, UTC).astimezone(zone_of(spec.time_zone))
    for local in CronSim(spec.cron or "", moment):
        tick = local.timestamp()
        # In the hour that a clock shows twice an expression of a fixed time is found once more, and is over.
        if tick > after:
            yield tick
