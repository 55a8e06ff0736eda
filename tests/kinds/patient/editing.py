"""Edits of what a patient run plans, fenced by version, and its questions next to the calls that wait for a person."""

from __future__ import annotations

from pathlib import Path

from patient_kind.records import Nudged, PatientSpec, PatientState

from cadre.journal import events as ev
from cadre.protocol.messages import Edit
from cadre.spec.kinds import sections
from harness.command import Commands
from harness.patience import eventually
from harness.stack import Gateway, Stack
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, replay_of, result, spec

LOOK = call("look", at="sky")
TOOLS = '''
from cadre import tool


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "a hoopoe"
'''
SCRIPT = """
rules:
  - name: last
    match: {tool: hoopoe}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: seen}}]}
  - name: first
    match: {}
    reply: {tool_calls: [{name: look, arguments: {}}]}
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: NAME}
spec: {description: Waits., kind: patient, patient: SECTION, tools: [look]}
"""


def edit(base: int, *operations: dict[str, str], number: int = 1) -> Edit:
    return Edit(id=f"e{number}", tree="r1", run="r1", at=2.0, base=base, operations=list(operations), sender="ann")


def add(wish: str) -> dict[str, str]:
    return {"op": "add", "wish": wish}


def test_the_first_edit_of_a_version_counts() -> None:
    sim = SimulatedRun(spec(kind="patient", **sections(PatientSpec(pause=5.0)))).begin()
    events = sim.arrive(edit(0, add("tea"), add("cake")))
    assert events == [
        ev.EditApplied(base=0, operations=[add("tea"), add("cake")], sender="ann"),
        Nudged(text="2 wishes"),
    ]
    (stale,) = sim.arrive(edit(0, add("ale"), number=2))
    assert isinstance(stale, ev.EditRefused)
    assert (stale.base, stale.version) == (0, 1)
    (wrong,) = sim.arrive(edit(1, add("ale"), {"op": "drop", "wish": "beer"}, number=3))
    assert isinstance(wrong, ev.EditRefused)
    assert "no such operation" in wrong.reason
    sim.say(LOOK)
    sim.arrive(result(sim.id(), 3))
    sim.arrive(edit(1, {"op": "drop", "wish": "tea"}, number=4))
    assert isinstance(sim.run.own, PatientState)
    assert (sim.run.own.wishes, sim.run.own.version) == (["cake"], 2)
    assert replay_of(sim).divergences == []


def test_a_kind_without_anything_to_edit_says_so() -> None:
    sim = SimulatedRun().begin()
    (refused,) = sim.arrive(edit(0, add("tea")))
    assert isinstance(refused, ev.EditRefused)
    assert (refused.version, "nothing to edit" in refused.reason) == (None, True)
    sim.say(ANSWER)
    assert kinds(sim.arrive(edit(0, add("tea"), number=2))) == ["RecordIgnored"]
    assert replay_of(sim).divergences == []


def begin(folder: Path, stack: Stack, section: str) -> tuple[Gateway, Commands]:
    (folder / "waiter.yaml").write_text(AGENT.replace("NAME", "waiter").replace("SECTION", section))
    (folder / "tools.py").write_text(TOOLS)
    (folder / "script.yaml").write_text(SCRIPT)
    stack.model(folder / "script.yaml")
    stack.agent(folder / "waiter.yaml", start=False)
    stack.tools(folder / "tools.py", start=False)
    gateway = stack.open_gateway(1)
    return gateway, Commands(folder, {**stack.environment, "CADRE_GATEWAY_URL": gateway.service.url})


def test_edits_over_http(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        gateway, _ = begin(tmp_path, stack, "{signal: go}")
        run = gateway.submit("waiter", "Look.")
        eventually(lambda: gateway.run(run)["waiting_for"] == "signal go", what="the run waits")
        queue = f"/v1/runs/{run}/queue"
        assert gateway.request("GET", queue).json() == {
            "run": run,
            "name": "queue",
            "version": 0,
            "state": [],
        }
        assert gateway.request("GET", f"/v1/runs/{run}/plan").json()["code"] == "not-editable"
        body = {"version": 0, "operations": [add("tea")], "by": "ann"}
        keyed = {"Idempotency-Key": "e1"}
        for _ in range(2):
            done = gateway.request("PATCH", queue, json=body, headers=keyed)
            assert (done.status_code, done.json()["version"], done.json()["state"]) == (200, 1, ["tea"])
        stale = gateway.request("PATCH", queue, json=body)
        assert (stale.status_code, stale.json()["code"], stale.json()["version"]) == (409, "stale-version", 1)
        wrong = gateway.request("PATCH", queue, json={"version": 1, "operations": [{"op": "sing"}]})
        assert (wrong.status_code, "no such operation" in wrong.json()["detail"]) == (422, True)
        assert gateway.request("PATCH", queue, json={"version": 1, "operations": []}).status_code == 422
        stack.services["waiter"].kill()
        eventually(
            lambda: gateway.request("GET", "/v1/agents").json()["agents"][0]["away_since"] is not None,
            what="the agent is away",
        )
        kept = gateway.request("PATCH", queue, json={"version": 1, "operations": [add("cake")]})
        assert (kept.status_code, kept.json()["at"]) == (202, None)
        stack.services["waiter"].start()
        eventually(lambda: gateway.request("GET", queue).json()["state"] == ["tea", "cake"], what="the edit counts")
        assert gateway.request("POST", f"/v1/runs/{run}/signals/go").status_code == 200
        assert gateway.succeeded(run) == "seen"
        late = gateway.request("PATCH", queue, json={"version": 2, "operations": [add("ale")]})
        assert (late.status_code, late.json()["code"]) == (409, "run-ended")


def test_a_question_stands_beside_the_calls_that_wait(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        gateway, command = begin(tmp_path, stack, "{ask: true}")
        no = gateway.submit("waiter", "Look.")
        call = gateway.wait_for(no, "approval.requested")["event"]["call"]
        listed = command("approvals")
        assert listed.returncode == 0, listed.stderr
        assert "question" in listed.stdout
        assert "May I make 1 calls?" in listed.stdout
        (shown,) = gateway.request("GET", "/v1/approvals", params={"run": no}).json()["approvals"]
        assert (shown["kind"], shown["reason"], shown["schema"]) == ("question", "May I make 1 calls?", None)
        whole = gateway.request("GET", f"/v1/approvals/{call}").json()
        assert (whole["kind"], whole["state"], whole["schema"]) == ("question", "pending", None)
        path = f"/v1/approvals/{call}"
        corrected = gateway.request("POST", path, json={"verdict": "corrected", "arguments": {"a": 1}})
        assert corrected.status_code == 422
        stack.services["waiter"].kill()
        stack.services["waiter"].start()
        rejected = command("reject", no, "--feedback", "Not now.")
        assert rejected.returncode == 0, rejected.stderr
        asked = gateway.wait_for(no, "approval.decided", call=call)["event"]
        assert (asked["verdict"], asked["feedback"]) == ("rejected", "Not now.")
        assert gateway.succeeded(no) == "seen"
        yes = gateway.submit("waiter", "Look.")
        gateway.wait_for(yes, "approval.requested")
        assert command("approve", yes).returncode == 0
        assert gateway.succeeded(yes) == "seen"
