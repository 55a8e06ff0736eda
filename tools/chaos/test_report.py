"""The summary has the figures, and on failure what it takes to do it again."""

from chaos.campaign import KEPT, Outcome
from chaos.evidence import Evidence
from chaos.report import summary
from chaos.sound import sound_evidence


def outcome(evidence: Evidence, *violations: str) -> Outcome:
    return Outcome(7, 60.0, KEPT / "seed-7", evidence, list(violations), 80.0, 2.0)


def test_a_good_end() -> None:
    text = summary(outcome(sound_evidence()))
    assert "seed 7: 60 s of chaos" in text
    assert "SIGKILL      1   tools 1" in text
    assert "runs         3   with 27 journals" in text
    assert "kinds        7   code 2 (0), goals 1 (0), plan 4 (0), solution 1 (0), task_queue 1 (0)" in text
    assert "effects     22   of 22 calls of unsafe tools" in text
    assert "code         4   blocks; 8 waits for calls; 0 went on in another sandbox" in text
    assert "unknown      1   calls interrupted: 1 had taken effect, 0 had not" in text
    assert "Every invariant held" in text


def test_a_bad_end() -> None:
    lost = [f"run {number:032x} was lost" for number in range(40)]
    text = summary(outcome(sound_evidence(), *lost, "dead letter: x"))
    assert "41 VIOLATIONS" in text
    assert f"  - {lost[0]} (and 39 more like it)" in text
    assert lost[1] not in text
    assert "  - dead letter: x" in text
    assert "make chaos SECONDS=60 SEED=7" in text
    assert "build/chaos/seed-7" in text


def test_nothing_happened_at_all() -> None:
    assert "runs         0" in summary(outcome(Evidence()))
