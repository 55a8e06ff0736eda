"""The simulation can fail: production parts with one rule broken are found out within a few seeds."""

from functools import cache
from typing import Any, NamedTuple

import pytest

from cadre.kinds.plan.progress import PlanProgress
from simulation.plan_courses import AS_CALLED, IN_ORDER
from simulation.planted import PLANTED
from simulation.world import play

MOST_SEEDS = 250
BEGIN = {"the model is shown what was summarized": 690, "what is left is not left again after a crash": 460}
"""The first seed of the search for a bug that shows in one seed of some hundreds, so that the search ends soon."""
END = PlanProgress.end


class Finding(NamedTuple):
    """The report of the first seed that finds a bug."""

    seed: int
    promise: str
    text: str


@cache
def finding(bug: str) -> Finding:
    """Plays seeds until one finds the bug."""
    parts, _ = PLANTED[bug]
    begin = BEGIN.get(bug, 0)
    for seed in range(begin, begin + MOST_SEEDS):
        outcome, world = play(seed, parts)
        if outcome.promise is not None:
            return Finding(seed, outcome.promise, f"seed {seed}: {outcome.failure}\n{world.trace.text(20)}")
    pytest.fail(f"{bug}: not found in {MOST_SEEDS} seeds")


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    _, promises = PLANTED[bug]
    found = finding(bug)
    assert found.promise in promises, found.text


@pytest.mark.parametrize(
    ("where", "name", "bug", "promises"),
    [
        (PlanProgress, "_is_free", lambda *_: True, {IN_ORDER}),
        (PlanProgress, "end_refused", lambda *_: None, {"every run reaches an end"}),
        (PlanProgress, "end", lambda walk, step, _: END(walk, step, None), {AS_CALLED}),
    ],
)
def test_a_bug_of_plans_is_found(
    where: Any, name: str, bug: Any, promises: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that do not wait, calls that are refused and never looked at again, errors that are taken for results."""
    monkeypatch.setattr(where, name, bug)
    found = next(filter(None, (play(seed)[0].promise for seed in range(3 * MOST_SEEDS))))
    assert found in promises


@pytest.mark.parametrize("bug", PLANTED)
def test_without_the_bug_the_same_seed_is_clean(bug: str) -> None:
    """The seed fails by the bug alone."""
    assert play(finding(bug).seed)[0].failure is None
