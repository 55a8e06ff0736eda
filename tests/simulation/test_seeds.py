"""Every promise holds in every seed: some hundreds of the many that `make simulate` plays."""

import gc
from functools import cache

import pytest

from simulation.world import LAST_EVENTS, play

CHUNK = 60
SEEDS = 360


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        holds(seed)
    gc.collect()


@cache
def holds(seed: int) -> dict[str, int]:
    """Return how often what happened in it."""
    outcome, world = play(seed)
    assert outcome.failure is None, (
        f"seed {seed}: {outcome.failure}\n{world.trace.text(LAST_EVENTS)}\nreplay it: make simulate SEED={seed}"
    )
    return outcome.counts


def test_the_seeds_have_seen_it_all() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: dict[str, int] = {}
    for seed in range(180):
        for what, times in holds(seed).items():
            seen[what] = seen.get(what, 0) + times
    for what in (
        *("crash", "killed", "stop", "cut", "drain", "server", "fenced", "redelivered", "duplicate"),
        *("lost-request", "lost-answer", "late-request", "lost-delivery", "lost-ack", "early-expiry"),
        *("stale-read", "timer", "cancel", "decision", "trial", "term", "model-limited", "model-busy"),
        *(
            "code",
            "replayed",
            "restored",
            "box-killed",
            "no-box",
            "code-slow",
            "unrestorable",
            "held-in-code",
        ),
        *("remembered", "recalled", "not-recalled", "summary", "later-summary", "checked", "fell-back"),
        *("passed-on", "paused", "far-away"),
        *("plan-model", "plan-given", "plan-basic", "plan-replan", "plan-side-by-side"),
    ):
        assert seen.get(what, 0) > 0, what
