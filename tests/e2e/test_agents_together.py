"""Several agents in one process: offered one by one, killed together, and no run is lost."""

from pathlib import Path

from harness.stack import Stack

TEAM = Path(__file__).parent / "clients"


def test_a_manager_and_its_member_in_one_process(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.model(TEAM / "script.yaml")
        together = stack.add("together", "cadre_agent", TEAM / "lead.yaml", TEAM / "writer.yaml", start=False)
        gateway = stack.gateway(start=False)
        stack.start_all()
        gateway.wait_offered(2)
        assert gateway.answer("writer", "write") == "a story"
        run = gateway.submit("lead", "have a story written")
        gateway.wait_for(run, "delegate.started")
        together.kill()
        together.start()
        stack.release_model()
        assert gateway.succeeded(run) == "the story is written"
        assert [child["agent"] for child in gateway.finished(run)["children"]] == ["writer"]
        assert together.terminate() == 0


def test_an_agent_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        twice = stack.add("twice", "cadre_agent", TEAM / "lead.yaml", TEAM / "lead.yaml", start=False)
        twice.start(wait=False)
        assert twice.process is not None
        assert twice.process.wait() == 2
        assert "agent lead is named twice: a second replica is a second process" in twice.log.read_text()
