"""Three gateways, one of which dies at every tick: each tick of a month is started exactly once."""

from itertools import pairwise

import pytest

from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import ScheduleState, new_schedule, next_ticks, paused
from cadre.protocol.access import Maker
from cadre_gateway.automation.evaluator import EvaluationEnded
from unit.automation.month import SimulatedGateways

MARCH = 1_772_323_200.0  # 2026-03-01T00:00Z
MONTH = 31 * 86_400.0


async def world_of(spec: ScheduleSpec, seed: int, lasting: float = 0.0) -> SimulatedGateways:
    world = SimulatedGateways(seed, MARCH, lasting)
    await world.states.write(spec.name, new_schedule(spec, MARCH), 0)
    await world.schedulers[0].handle(spec.name)
    return world


def started_ticks(world: SimulatedGateways) -> list[float]:
    return sorted(start.tick for start, _ in world.runs.started.values())


async def state_of(world: SimulatedGateways, name: str) -> ScheduleState:
    state, _ = await world.states.read(name)
    assert state is not None
    return state


async def test_each_tick_of_a_month_is_started_exactly_once() -> None:
    spec = ScheduleSpec(
        name="quarterly",
        agent="clerk",
        task="{{ count }}",
        cron="*/15 * * * *",
        time_zone="Europe/Berlin",
        jitter=20,
    )
    world = await world_of(spec, 0)
    await world.until(MARCH + MONTH)
    expected = [tick for tick in next_ticks(spec, MARCH, MARCH, 5000, None) if tick < MARCH + MONTH - 20]
    assert started_ticks(world)[: len(expected)] == expected
    assert len(expected) > 2900
    assert [start.task for start, _ in world.runs.started.values()][:3] == ["1", "2", "3"]
    state = await state_of(world, "quarterly")
    assert (state.started, state.missed, state.skipped) == (len(world.runs.started), 0, 0)
    assert world.deaths > len(expected) // 4
    assert max(world.runs.published.values()) > 1, "no death came between the start and its record"
    assert world.states.fenced > 0


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow", "cancel"])
async def test_overlapping_runs_keep_their_policy_through_deaths(overlap: str) -> None:
    spec = ScheduleSpec(name="slow", agent="clerk", task="x", every=100, overlap=overlap, count=40)  # type: ignore[arg-type]
    world = await world_of(spec, 7, lasting=250.0)
    await world.until(MARCH + 86_400)
    times = sorted(at for _, at in world.runs.started.values())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    state = await state_of(world, "slow")
    assert state.ticks == 40
    match overlap:
        case "skip":
            assert all(gap >= 250 for gap in gaps)
            assert state.skipped == 40 - len(times)
        case "queue":
            assert all(gap >= 250 for gap in gaps)
            assert len(times) == 40
        case "allow":
            assert len(times) == 40
            assert not world.runs.cancelled
        case "cancel":
            assert len(times) == 40
            assert len(world.runs.cancelled) == 39


async def test_what_nobody_was_told_of_is_found() -> None:
    """The gateway that made the schedule died before it set the first alarm."""
    world = SimulatedGateways(1, MARCH)
    spec = ScheduleSpec(name="lost", agent="clerk", task="x", every=100)
    await world.states.write("lost", new_schedule(spec, MARCH), 0)
    world.clock.time = MARCH + 130
    await world.schedulers[1].handle_overdue()
    await world.until(MARCH + 130)
    assert started_ticks(world) == [MARCH + 100]
    assert world.alarms.due == {"lost": MARCH + 200}


async def test_all_gateways_were_away() -> None:
    spec = ScheduleSpec(name="away", agent="clerk", task="x", every="1h", missed="all", window="3h", overlap="allow")
    world = await world_of(spec, 1)
    world.alarms.due.clear()
    world.clock.time = MARCH + 10 * 3600 + 300
    await world.schedulers[2].handle_overdue()
    await world.until(world.clock.time)
    assert started_ticks(world) == [MARCH + hour * 3600 for hour in (8, 9, 10)]
    assert (await state_of(world, "away")).missed == 7


async def test_a_pause_that_comes_while_a_tick_is_handled_starts_nothing_twice() -> None:
    spec = ScheduleSpec(name="paused", agent="clerk", task="x", every=100)
    world = await world_of(spec, 1)
    world.clock.time = MARCH + 100
    state, fence = await world.states.read("paused")
    assert state is not None
    await world.states.write("paused", paused(state, True, world.clock.now()), fence)
    await world.schedulers[0].handle("paused")
    assert started_ticks(world) == []
    state, fence = await world.states.read("paused")
    assert state is not None
    await world.states.write("paused", paused(state, False, world.clock.now()), fence)
    await world.schedulers[0].handle("paused")
    await world.until(MARCH + 450)
    assert started_ticks(world) == [MARCH + 200, MARCH + 300, MARCH + 400]


async def test_a_schedule_pauses_without_a_tick_when_its_maker_has_lost_their_rights() -> None:
    spec = ScheduleSpec(name="often", agent="clerk", task="{{ count }}", every=10)
    world = SimulatedGateways(3, MARCH)
    await world.states.write(spec.name, new_schedule(spec, MARCH, Maker(name="ann", key="k1")), 0)
    await world.schedulers[0].handle(spec.name)
    await world.until(MARCH + 100)
    before = await state_of(world, "often")
    assert before.started >= 9
    world.runs.lost["k1"] = "maker-revoked"
    await world.until(MARCH + 500)
    state = await state_of(world, "often")
    assert (state.paused, state.paused_for, state.ticks) == (True, "maker-revoked", before.ticks)
    assert len(world.runs.started) == before.started
    over = ScheduleSpec(name="over", agent="clerk", task="x", every=10, count=1)
    await world.states.write("over", new_schedule(over, MARCH - 20, Maker(name="bob", key="k2")), 0)
    await world.schedulers[0].handle("over")
    world.runs.lost["k2"] = "maker-expired"
    await world.schedulers[1].handle_overdue()
    assert not (await state_of(world, "over")).paused, "nothing is left that could start"


async def test_a_tick_that_is_given_up_is_a_dead_letter_and_the_next_one_comes() -> None:
    spec = ScheduleSpec(name="dear", agent="clerk", task="{{ count }}", every=100)
    world = await world_of(spec, 3)
    world.decisions.killing.add(MARCH + 200)
    await world.until(MARCH + 150)
    world.clock.time = MARCH + 200
    with pytest.raises(EvaluationEnded):
        await world.schedulers[0].handle("dear")
    assert (await state_of(world, "dear")).next_at == MARCH + 200
    await world.schedulers[1].handle("dear", "it never ends")
    await world.schedulers[2].handle("dear", "it never ends")
    assert {(name, tick) for name, tick, _ in world.alarms.letters} == {("dear", MARCH + 200)}
    await world.until(MARCH + 350)
    assert started_ticks(world) == [MARCH + 100, MARCH + 300]
    state = await state_of(world, "dear")
    assert [one.outcome for one in state.outcomes] == ["started", "failed", "started"]
    assert (state.ticks, state.started, state.given_up) == (3, 2, [])
    # Its letter is delivered again, once what was wrong is mended.
    assert await world.schedulers[0].try_again("dear", MARCH + 200)
    assert started_ticks(world) == [MARCH + 100, MARCH + 200, MARCH + 300]
    assert not await world.schedulers[0].try_again("dear", MARCH + 200)
    assert not await world.schedulers[0].try_again("gone", MARCH + 200)
    assert [start.task for start, _ in world.runs.started.values()] == ["1", "3", "2"]


async def test_of_queued_ticks_only_the_one_whose_turn_it_is_is_given_up() -> None:
    spec = ScheduleSpec(name="line", agent="clerk", task="x", every=10, overlap="queue")
    world = await world_of(spec, 3, lasting=45)
    await world.until(MARCH + 40)
    queued = (await state_of(world, "line")).queued
    assert len(queued) == 3
    world.clock.time = MARCH + 60
    await world.schedulers[1].handle("line", "it never ends")
    assert [tick for _, tick, _ in world.alarms.letters] == [queued[0].tick]
    assert started_ticks(world)[-1] == queued[1].tick
    assert (await state_of(world, "line")).queued[0] == queued[2]
