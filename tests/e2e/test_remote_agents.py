"""Agents of another deployment as members of a team, by A2A: kills on both sides, questions, ends, failures."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.http_line import HttpLine
from harness.patience import eventually
from harness.stack import Gateway, Stack

NEAR, FAR = Path(__file__).parent / "remote", Path(__file__).parent / "remote_far"
LEGAL = """
apiVersion: cadre.dev/v1
kind: RemoteAgent
metadata: {{name: legal}}
spec:
  description: Knows the law.
  card: {url}/a2a/law/.well-known/agent-card.json
  headers: {{X-Token: "${{LEGAL_TOKEN}}"}}
  poll: 1s
  transport: {transport}
"""


class Both(NamedTuple):
    """The deployment that has the team, and the one that has the remote agent."""

    near: Stack
    far: Stack
    gateway: Gateway
    remote: Gateway
    line: HttpLine

    def remote_runs(self) -> list[dict[str, Any]]:
        found = self.remote.request("GET", "/v1/runs", params={"limit": "500"}).json()["runs"]
        return [run for run in found if run["agent"] == "law"]

    def member_of(self, run: str) -> str:
        """The run that stands for the remote task."""
        started = self.gateway.wait_for(run, "delegate.started")
        child: str = started["event"]["call"]
        return child

    def told(self, run: str, state: str) -> dict[str, Any]:
        return self.gateway.wait_for(run, "remote.updated", state=state)


@pytest.fixture(scope="module", params=["JSONRPC 1.0", "HTTP+JSON 1.0", "JSONRPC 0.3"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("near")
    with Stack(tmp_path_factory.mktemp("far")) as far, Stack(folder) as near:
        far.model(FAR / "script.yaml")
        far.agent(FAR / "law.yaml", start=False)
        far.tools(FAR / "tools.py", start=False)
        remote = far.gateway(start=False)
        far.start_all()
        with HttpLine(remote.service.url) as line:
            legal = folder / "legal.yaml"
            legal.write_text(LEGAL.format(url=line.url, transport=request.param))
            near.model(NEAR / "script.yaml")
            near.environment["LEGAL_TOKEN"] = "secret-token"
            near.agent(NEAR / "boss.yaml", start=False)
            near.agent(legal, start=False)
            near.tools(legal, name="legal-tools", start=False)
            gateway = near.gateway(start=False)
            near.start_all()
            gateway.wait_offered(2)
            remote.wait_offered(1)
            yield Both(near, far, gateway, remote, line)


def test_a_manager_has_it_do_a_task(both: Both) -> None:
    before = len(both.remote_runs())
    run = both.gateway.submit("boss", "have legal: answer as JSON")
    assert "free" in both.gateway.succeeded(run)
    assert len(both.remote_runs()) == before + 1
    events = [data for _, data in both.gateway.events(run)]
    calls = [one["event"] for one in events if one.get("event", {}).get("type") == "tool.called"]
    assert [call["tool"] for call in calls][:2] == ["legal_send_message", "legal_get_task"][: len(calls)]
    (accepted,) = [
        data["event"] for name, data in both.remote.events(both.remote_runs()[0]["id"]) if name == "run.accepted"
    ]
    assert accepted["task"]["trace"], "the remote run knows the call that began it"


def test_a_run_of_it_alone_gives_what_the_remote_run_gave(both: Both) -> None:
    assert both.gateway.answer("legal", "answer as JSON") == {"verdict": "free", "years": 0}
    said = both.gateway.answer("legal", "look at this", inputs={"case": "0815"})
    assert said == "Case 0815 is closed."


def test_a_long_answer_is_a_file(both: Both) -> None:
    found = both.gateway.answer("legal", "write a book")
    assert found["$file"]["size"] == len("word " * 8_000)


def test_a_failure_is_told(both: Both) -> None:
    ended = both.gateway.finished(both.gateway.submit("legal", "break"))
    assert (ended["state"], ended["error"]["type"]) == ("error", "RemoteAgentFailed")
    assert "no such key" in ended["error"]["message"]


def test_an_executor_killed_between_send_and_answer_finds_its_task(both: Both) -> None:
    before = len(both.remote_runs())
    both.far.hold_model()
    both.line.hold()
    run = both.gateway.submit("boss", "have legal: this takes long")
    both.line.wait_answered()
    eventually(lambda: len(both.remote_runs()) == before + 1, what="the remote run has begun")
    both.near.services["legal-tools"].kill()
    both.line.release()
    both.near.services["legal-tools"].start()
    both.told(run, "working")
    sends = [method for method in both.line.methods if method.lower().endswith(("sendmessage", "send"))]
    assert len(sends) >= 2, "it was sent again"
    both.far.release_model()
    assert "It depends." in both.gateway.succeeded(run)
    assert len(both.remote_runs()) == before + 1, "one remote run"


def test_killed_agents_and_gateways_on_both_sides_give_one_result(both: Both) -> None:
    before = len(both.remote_runs())
    both.far.hold_model()
    run = both.gateway.submit("boss", "have legal: this takes long")
    both.told(run, "working")
    both.remote.service.kill()
    both.gateway.wait_for(run, "remote.unreachable")
    both.near.services["legal"].kill()
    both.near.services["legal-tools"].kill()
    both.near.services["legal"].start()
    both.near.services["legal-tools"].start()
    both.remote.service.start()
    both.far.release_model()
    assert "It depends." in both.gateway.succeeded(run)
    assert len(both.remote_runs()) == before + 1


def test_what_it_asks_is_asked_here(both: Both) -> None:
    for verdict, outcome in (("approved", "filed against Ann"), ("rejected", "did not allow")):
        run = both.gateway.submit("boss", "have legal: please sue Ann")
        held = both.gateway.wait_for(run, "approval.requested")["event"]
        assert held["kind"] == "question"
        assert held["arguments"]["asked"][0]["arguments"] == {"against": "Ann"}
        answer = both.gateway.request("POST", f"/v1/approvals/{held['call']}", json={"verdict": verdict})
        assert answer.status_code == 200, answer.text
        assert outcome in both.gateway.succeeded(run)


def test_an_end_is_passed_on(both: Both) -> None:
    both.far.hold_model()
    run = both.gateway.submit("boss", "have legal: this takes long")
    both.told(run, "working")
    both.gateway.request("POST", f"/v1/runs/{run}/cancel").raise_for_status()
    assert both.gateway.finished(run)["state"] == "cancelled"
    remote = both.remote_runs()[0]["id"]
    assert both.remote.finished(remote)["state"] == "cancelled"
    both.far.release_model()


def test_no_journal_holds_the_secret(both: Both) -> None:
    run = both.gateway.submit("legal", "answer as JSON")
    both.gateway.succeeded(run)
    export = both.gateway.request("GET", f"/v1/runs/{run}/events")
    for secret in (b"secret-token", base64.b64encode(b"secret-token")):
        assert secret not in export.content
