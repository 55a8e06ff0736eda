"""A seed says which process is hurt when and how, within the bounds that make a verdict possible."""

from collections import Counter

import pytest

from chaos.crew import GROUPS
from chaos.schedule import LONGEST_PAUSE, MUST, SHORTEST_PAUSE, Fault, schedule

SEEDS = range(40)


def group_of(fault: Fault) -> str:
    return fault.victims[0].partition("-")[0]


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 60, GROUPS) == schedule(7, 60, GROUPS)
    assert schedule(7, 60, GROUPS) != schedule(8, 60, GROUPS)


def test_a_longer_chaos_begins_like_a_shorter_one() -> None:
    short = schedule(7, 20, GROUPS)
    assert schedule(7, 120, GROUPS)[: len(short)] == short


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minute_has_every_kind_of_fault_that_must_be(seed: int) -> None:
    faults = schedule(seed, 60, GROUPS)
    done = Counter((fault.kind, group_of(fault)) for fault in faults)
    assert set(MUST) <= set(done)
    assert 20 <= len(faults) <= 100
    assert all(0 < fault.at < 60 for fault in faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pause_outlasts_the_ack_wait(seed: int) -> None:
    pauses = [fault.lasts for fault in schedule(seed, 120, GROUPS) if fault.kind == "pause"]
    assert pauses
    assert all(SHORTEST_PAUSE <= lasts <= LONGEST_PAUSE for lasts in pauses)
    assert SHORTEST_PAUSE > 4


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_hurt_while_down_nor_a_group_while_it_is_restarted(seed: int) -> None:
    busy: dict[str, float] = {}
    for fault in schedule(seed, 300, GROUPS):
        assert all(busy.get(name, 0.0) < fault.at for name in fault.victims)
        lasts = max(fault.lasts, 5.0 if fault.kind == "restart" else 0.0)
        busy |= dict.fromkeys(fault.victims, fault.at + lasts)
        if fault.kind == "restart":
            assert fault.victims in GROUPS.values()
