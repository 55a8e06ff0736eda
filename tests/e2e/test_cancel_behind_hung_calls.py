"""Runs whose model is silent are cancelled at once, however many messages wait for their places."""

from pathlib import Path

from harness.stack import Stack

TEAM = Path(__file__).parent / "hung"
WAITING = 6
"""More than a process with one place holds in hand."""


def test_a_run_is_cancelled_although_all_places_are_held_by_hung_calls(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.environment |= {"CADRE_CONCURRENCY": "1", "CADRE_SHARDS": "1"}
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "worker.yaml", start=False)
        gateway = stack.open_gateway(1)
        runs = [gateway.submit("worker", f"task {number}") for number in range(1 + WAITING)]
        gateway.wait_for(runs[0], "model.called")
        # The last ones first: theirs lie behind all tasks, and the place is held still.
        for run in (runs[0], *reversed(runs[1:])):
            assert gateway.request("POST", f"/v1/runs/{run}/cancel", json={}).status_code in (200, 202)
        assert {gateway.finished(run)["state"] for run in runs} == {"cancelled"}
        assert stack.model_requests(), "it was asked, and has not answered"
