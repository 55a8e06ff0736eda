"""Teams with patient agents in the simulated world, under every fault that it has."""

from __future__ import annotations

from collections import Counter

from patient_kind.records import Noted

from cadre.journal.events import EditApplied
from simulation.world import play

SEEDS = range(60)


def test_every_promise_holds() -> None:
    failures, notes, edits, counts = [], 0, 0, Counter[str]()
    for seed in SEEDS:
        outcome, world = play(seed)
        counts.update(outcome.counts)
        failures += [f"seed {seed}: {outcome.failure}"] if outcome.failure is not None else []
        notes += sum(
            isinstance(event, Noted) for chronicle in world.history.runs.values() for event in chronicle.events
        )
        edits += sum(
            isinstance(event, EditApplied) for chronicle in world.history.runs.values() for event in chronicle.events
        )
    assert failures == []
    assert edits > 0
    assert notes > len(SEEDS)
    assert min(counts[fault] for fault in ("crash", "redelivered", "stale-read")) > 0
