"""Compute the ticks of a schedule, in Unix seconds: the moments at which it is due, with daylight saving time."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice

from cadre.automation.schedule import ScheduleSpec, zone_of
from cadre.spec.durations import checked_seconds


def ticks_after(spec: ScheduleSpec, after: float, anchor: float) -> Iterator[float]:
    """The schedule's ticks later than `after`, in order; `anchor` is when the schedule was made.

    Its end counts, its `count` does not: that needs to know how many there were.
    """
    end = spec.unix(spec.end) if spec.end is not None else math.inf
    start = spec.unix(spec.start) if spec.start is not None else None
    for tick in _endless(spec, after, anchor, start):
        if tick > end:
            return
        yield tick


def first_tick(spec: ScheduleSpec, now: float) -> float | None:
    """The first tick of a schedule that is made now; None when none is left.

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
    """The moments anchor, anchor + interval, …; the anchor itself is one of them only with `first`."""
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
