"""Tests of what becomes of a schedule when ticks are due: overlap, missed ticks, counts, pauses."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import (
    RECHECK_SECONDS,
    ScheduleState,
    changed,
    decide,
    new_schedule,
    owed_start,
    paused,
    refused,
    settled,
    started_by_hand,
    taken_over,
)
from cadre.protocol.access import Maker

MADE = 1_000_000.0
DAY = 86_400.0


def made(**fields: Any) -> ScheduleState:
    given = {"name": "daily", "agent": "clerk", "task": "Tick {{ count }}.", "every": 10, **fields}
    return new_schedule(ScheduleSpec(**given), MADE)


def outcomes(state: ScheduleState) -> list[str]:
    return [one.outcome for one in state.outcomes]


def test_a_tick_starts_a_run_whose_id_follows_from_it() -> None:
    state = decide(made(), MADE + 10, busy=False)
    (start,) = state.starts
    assert (start.task, start.tick, state.last_run) == ("Tick 1.", MADE + 10, start.run)
    assert state.next_at == MADE + 20
    assert decide(made(), MADE + 12, busy=False).starts[0].run == start.run


def test_nothing_is_decided_before_the_tick() -> None:
    state = made()
    assert decide(state, MADE + 9.9, busy=False) is state


def test_the_task_knows_its_tick() -> None:
    state = made(task="{{ tick.strftime('%H:%M') }} {{ schedule }}", time_zone="Europe/Berlin")
    assert decide(state, MADE + 10, busy=False).starts[0].task == "14:46 daily"


@pytest.mark.parametrize(
    ("overlap", "outcome", "starts", "cancels"),
    [
        ("skip", "skipped", 0, 0),
        ("queue", "queued", 0, 0),
        ("allow", "started", 1, 0),
        ("cancel", "started", 1, 1),
    ],
)
def test_a_tick_while_the_last_run_goes_on(overlap: str, outcome: str, starts: int, cancels: int) -> None:
    first = settled(decide(made(overlap=overlap), MADE + 10, busy=False))
    second = decide(first, MADE + 20, busy=True)
    assert outcomes(second) == ["started", outcome]
    assert (len(second.starts), second.cancels) == (starts, [first.last_run][:cancels])


def test_queued_ticks_start_one_by_one_in_their_order() -> None:
    state = settled(decide(made(overlap="queue", count=3), MADE + 10, busy=False))
    state = decide(decide(state, MADE + 20, busy=True), MADE + 30, busy=True)
    assert state.next_at is None
    assert state.wake_at(MADE + 30) == MADE + 30 + RECHECK_SECONDS
    state = decide(state, MADE + 31, busy=False)
    assert [start.task for start in state.starts] == ["Tick 2."]
    state = decide(settled(state), MADE + 40, busy=False)
    assert [start.task for start in state.starts] == ["Tick 3."]
    assert state.wake_at(MADE + 41) is None


@pytest.mark.parametrize(
    ("missed", "started", "lost"),
    [("skip", [], 5), ("one", ["Tick 5."], 4), ("all", ["Tick 3.", "Tick 4.", "Tick 5."], 2)],
)
def test_missed_ticks_are_made_up_for_within_the_window(missed: str, started: list[str], lost: int) -> None:
    """The window goes back to the third of five."""
    state = made(every="1h", missed=missed, window=9_000, overlap="allow")
    state = decide(state, MADE + 5 * 3600 + 600, busy=False)
    assert [start.task for start in state.starts] == started
    assert (state.missed, state.ticks) == (lost, 5)
    assert outcomes(state) == ["missed"] * lost + ["started"] * len(started)


def test_what_is_made_up_for_overlaps_as_anything_else() -> None:
    state = decide(made(every="1h", missed="all"), MADE + 3 * 3600 + 600, busy=False)
    assert outcomes(state) == ["started", "skipped", "skipped"]
    state = decide(made(every="1h", missed="all", overlap="cancel"), MADE + 3 * 3600 + 600, busy=False)
    assert outcomes(state) == ["skipped", "skipped", "started"]


def test_a_one_time_schedule_that_was_missed_is_not_lost_silently() -> None:
    past = datetime.fromtimestamp(MADE - 3600, UTC)
    state = decide(made(every=None, start=past), MADE, busy=False)
    assert (len(state.starts), state.next_at) == (1, None)
    late = decide(made(every=None, start=past, window=60), MADE, busy=False)
    assert (late.starts, late.missed, outcomes(late)) == ([], 1, ["missed"])


def test_years_of_missed_seconds_take_no_time() -> None:
    state = decide(made(every=1, missed="one"), MADE + 900 * DAY, busy=False)
    assert len(state.starts) == 1
    assert state.starts[0].tick >= MADE + 899 * DAY
    assert state.next_at is not None


def test_no_more_ticks_come_than_its_count() -> None:
    state = made(count=2, overlap="allow")
    assert state.upcoming(9) == [MADE + 10, MADE + 20]
    state = settled(decide(decide(state, MADE + 10, busy=False), MADE + 20, busy=False))
    assert (state.next_at, state.upcoming(9), state.started) == (None, [], 2)


def test_ticks_of_a_pause_do_not_come() -> None:
    state = paused(made(), True, MADE)
    assert decide(state, MADE + 50, busy=False) is state
    assert state.wake_at(MADE + 50) is None
    assert paused(state, False, MADE + 55).next_at == MADE + 60


def test_the_tick_of_a_one_time_schedule_waits_for_the_end_of_a_pause() -> None:
    state = paused(made(every=None, start=datetime.fromtimestamp(MADE + 10, UTC)), True, MADE)
    assert len(decide(paused(state, False, MADE + 55), MADE + 55, busy=False).starts) == 1


def test_another_task_changes_no_tick_and_other_times_begin_anew() -> None:
    state = settled(decide(made(), MADE + 10, busy=False))
    other = changed(state, msgspec.structs.replace(state.spec, task="Otherwise."), MADE + 13)
    assert (other.next_at, other.last_run) == (MADE + 20, state.last_run)
    assert changed(state, msgspec.structs.replace(state.spec, every=60), MADE + 13).next_at == MADE + 73


def test_a_tick_whose_task_cannot_be_rendered_is_told_and_the_next_one_comes() -> None:
    state = decide(made(task="{{ tick.nothing() }}"), MADE + 10, busy=False)
    assert (outcomes(state), state.starts, state.next_at) == (["failed"], [], MADE + 20)


def test_a_state_survives_being_written_down() -> None:
    state = decide(made(jitter=3, overlap="queue"), MADE + 13, busy=True)
    assert msgspec.json.decode(msgspec.json.encode(state), type=ScheduleState) == state


def test_the_same_request_for_a_run_by_hand_counts_once_whatever_came_between() -> None:
    state = made()
    first, other = (owed_start(state, MADE, 0, key, Maker(name="ann")) for key in ("k1", "k2"))
    for start in (first, other, first, other, first):
        state = settled(started_by_hand(state, start, MADE + 1))
    assert (state.started, state.ticks) == (2, 0)
    assert [one.run for one in state.outcomes] == [first.run, other.run]


def test_a_run_by_hand_that_was_refused_may_be_asked_for_again() -> None:
    state = made()
    start = owed_start(state, MADE, 0, "k", Maker(name="ann"))
    state = settled(refused(started_by_hand(state, start, MADE), start, "too many", "rate-limited"))
    assert (state.started, [one.code for one in state.outcomes]) == (0, ["rate-limited"])
    state = started_by_hand(state, start, MADE + 5)
    assert (state.started, outcomes(state), state.starts) == (0, ["started"], [start])
    assert settled(state).started == 1


def test_ticks_and_runs_by_hand_have_no_id_in_common() -> None:
    state = made()
    tick = owed_start(state, MADE, 1)
    assert owed_start(state, MADE, 1, tick.key).run != tick.run
    assert owed_start(made(name="weekly"), MADE, 1).run != tick.run


@pytest.mark.parametrize("key", [None, "k"])
def test_the_ids_of_runs_follow_from_what_nobody_knows_but_the_schedule(key: str | None) -> None:
    one, other = (new_schedule(made().spec, MADE, salt=salt) for salt in ("a", "b"))
    assert owed_start(one, MADE, 1, key).run != owed_start(other, MADE, 1, key).run
    edited = changed(one, made(task="Otherwise.").spec, MADE + 1)
    assert owed_start(edited, MADE, 1, key).run == owed_start(one, MADE, 1, key).run


def test_who_takes_a_schedule_over_ends_its_pause_for_want_of_a_maker_and_no_other() -> None:
    ann = Maker(name="ann", key="k")
    lost = taken_over(paused(made(), True, MADE, "maker-revoked"), ann, MADE + 25)
    assert (lost.paused, lost.paused_for, lost.maker, lost.next_at) == (False, "", ann, MADE + 30)
    by_hand = taken_over(paused(made(), True, MADE), ann, MADE + 25)
    assert (by_hand.paused, by_hand.maker) == (True, ann)
    assert paused(paused(made(), True, MADE, "maker-revoked"), True, MADE).paused_for == ""
