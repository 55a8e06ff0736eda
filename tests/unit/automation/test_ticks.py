"""Tests of when a schedule is due: intervals, cron expressions, time zones, daylight saving time."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import first_tick, jittered, next_ticks

BERLIN = ZoneInfo("Europe/Berlin")


def spec(**fields: Any) -> ScheduleSpec:
    return ScheduleSpec(**{"name": "daily", "agent": "clerk", "task": "Do it.", **fields})


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def ticks(one: ScheduleSpec, after: str, count: int, left: int | None = None) -> list[str]:
    found = next_ticks(one, unix(after), unix(after), count, left)
    return [one.local(tick).isoformat() for tick in found]


def test_an_interval_is_counted_from_its_start() -> None:
    one = spec(every="20m", start=datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert first_tick(one, unix("2026-03-01T11:59:00+00:00")) == unix("2026-03-01T12:00:00+00:00")
    assert ticks(one, "2026-03-01T12:10:00+00:00", 2) == [
        "2026-03-01T12:20:00+00:00",
        "2026-03-01T12:40:00+00:00",
    ]


def test_an_interval_without_a_start_is_counted_from_when_it_was_made() -> None:
    made = unix("2026-03-01T12:00:07+00:00")
    assert first_tick(spec(every=30), made) == made + 30
    assert next_ticks(spec(every=30), made + 61, made, 2, None) == [made + 90, made + 120]


def test_a_cron_expression_is_of_its_time_zone_also_when_clocks_change() -> None:
    one = spec(cron="30 9 * * *", time_zone="Europe/Berlin")
    assert ticks(one, "2026-03-28T00:00:00+00:00", 2) == [
        "2026-03-28T09:30:00+01:00",
        "2026-03-29T09:30:00+02:00",
    ]


def test_a_time_that_a_clock_leaves_out_comes_at_the_change() -> None:
    one = spec(cron="30 2 * * *", time_zone="Europe/Berlin")
    assert ticks(one, "2026-03-28T12:00:00+00:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_a_clock_shows_twice_comes_once() -> None:
    one = spec(cron="30 2 * * *", time_zone="Europe/Berlin")
    assert ticks(one, "2026-10-24T12:00:00+00:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    within = unix("2026-10-25T01:10:00+00:00")  # 02:10 for the second time
    assert one.local(next_ticks(one, within, within, 1, None)[0]).day == 26


def test_every_hour_comes_in_the_hour_that_is_there_twice_as_well() -> None:
    one = spec(cron="0 * * * *", time_zone="Europe/Berlin")
    found = next_ticks(one, unix("2026-10-24T22:30:00+00:00"), 0, 5, None)
    assert [later - earlier for earlier, later in pairwise(found)] == [3600] * 4


def test_no_tick_is_before_the_start_or_after_the_end() -> None:
    one = spec(
        cron="0 12 * * *",
        start=datetime(2026, 5, 2, 12),
        end=datetime(2026, 5, 3, 12),
        time_zone="Europe/Berlin",
    )
    assert ticks(one, "2026-01-01T00:00:00+00:00", 9) == [
        "2026-05-02T12:00:00+02:00",
        "2026-05-03T12:00:00+02:00",
    ]


def test_one_time_is_one_tick_also_when_it_is_past() -> None:
    one = spec(start=datetime(2026, 5, 2, 12), time_zone="Europe/Berlin")
    assert first_tick(one, unix("2026-06-01T00:00:00+00:00")) == unix("2026-05-02T12:00:00+02:00")
    assert ticks(one, "2026-05-02T10:00:00+00:00", 3) == []


def test_no_more_ticks_than_are_left_of_the_count() -> None:
    assert len(ticks(spec(every=1), "2026-01-01T00:00:00+00:00", 9, left=2)) == 2


@given(st.floats(0, 4e9), st.integers(1, 100_000))
def test_jitter_is_the_same_for_all_and_within_its_bound(tick: float, jitter: int) -> None:
    one = spec(cron="* * * * *", jitter=jitter)
    assert tick <= jittered(one, tick) <= tick + jitter
    assert jittered(one, tick) == jittered(one, tick)


@given(
    st.sampled_from(["0 * * * *", "30 2 * * *", "*/7 1-3 * * *", "15 0,2 * * 0", "0 0 2 * * *"]),
    st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_ticks_come_in_order_wherever_one_begins(cron: str, begin: datetime, zone: str) -> None:
    one = spec(cron=cron, time_zone=zone)
    after = begin.replace(tzinfo=UTC).timestamp()
    found = next_ticks(one, after, after, 40, None)
    assert found == sorted(set(found))
    assert found[0] > after
    assert next_ticks(one, found[0], after, 39, None) == found[1:]


@pytest.mark.parametrize("days", [1, 40, 400])
def test_an_interval_far_from_its_start_is_found_at_once(days: int) -> None:
    one = spec(every=1, start=datetime(2026, 1, 1, tzinfo=UTC))
    later = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=days)
    assert next_ticks(one, later.timestamp(), 0, 1, None) == [later.timestamp() + 1]
