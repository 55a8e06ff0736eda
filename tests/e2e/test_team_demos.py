"""The shipped example teams show what they are for: `cadre up TEAM --run` as their README has it."""

from pathlib import Path

from harness.command import run_demo

TEAMS = Path(__file__).parents[2] / "teams"


def test_the_concierge_remembers_its_guests_and_forgets_one(tmp_path: Path) -> None:
    done = run_demo(TEAMS / "concierge", tmp_path, CADRE_MEMORY_EMBEDDINGS="none")
    assert done.stdout.splitlines()[-1] == (
        "Ada was remembered and then forgotten, Bob was remembered, and neither was told of the other."
    )
    assert "demo.program passed" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a demo that passed leaves nothing behind"


def test_a_person_corrects_a_payment_that_the_auditor_proposes(tmp_path: Path) -> None:
    done = run_demo(TEAMS / "expenses", tmp_path)
    assert "one payment, and 215.50 was paid: what is due." in done.stdout.splitlines()[-1]
    assert "demo.program passed" in done.stderr
