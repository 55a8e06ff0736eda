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


def test_a_clerk_settles_each_ticket_once_while_a_person_edits_its_queue(tmp_path: Path) -> None:
    done = run_demo(TEAMS / "tickets", tmp_path, TICKETS_DB=str(tmp_path / "shop"))
    assert "5 tickets are settled, each once, 217.50 was paid back" in done.stdout.splitlines()[-1]


def test_a_schedule_and_people_have_purchases_made(tmp_path: Path) -> None:
    done = run_demo(TEAMS / "purchases", tmp_path, PURCHASES_DB=str(tmp_path / "ledger"))
    assert "nothing is left but an apology" in done.stdout.splitlines()[-1]


def test_a_study_is_planned_anew_where_a_step_has_failed(tmp_path: Path) -> None:
    done = run_demo(TEAMS / "study", tmp_path)
    assert "Eight steps, of which one was planned anew: Rain of the year" in done.stdout.splitlines()[-1]
    assert "demo.program passed" in done.stderr
