"""The simulation can fail: production parts with one rule broken are found out within a few seeds."""

import pytest

from simulation.planted import PLANTED
from simulation.world import play

MOST_SEEDS = 250


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    parts, promises = PLANTED[bug]
    for seed in range(MOST_SEEDS):
        outcome, world = play(seed, parts)
        if outcome.promise is not None:
            assert outcome.promise in promises, f"seed {seed}: {outcome.failure}\n{world.trace.text(20)}"
            return
    pytest.fail(f"{bug}: not found in {MOST_SEEDS} seeds")


@pytest.mark.parametrize("bug", PLANTED)
def test_without_the_bug_the_same_seed_is_clean(bug: str) -> None:
    """What was found is the bug, and nothing else that the seed does."""
    parts, _ = PLANTED[bug]
    seed = next(seed for seed in range(MOST_SEEDS) if play(seed, parts)[0].failure)
    assert play(seed)[0].failure is None
