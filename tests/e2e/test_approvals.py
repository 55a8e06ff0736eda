"""Calls that wait for a person: decided by HTTP, kept through the death of every service."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.people import decide, done, error_codes, events_of, waiting
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "held"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


# --- one word on one call


def test_an_approved_call_is_made(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    assert (call["agent"], call["name"], call["kind"]) == ("clerk", "refund", "tool")
    assert call["arguments"] == {"file": str(books), "amount": 500}
    assert (call["reason"], call["expires_at"]) == ("when: amount > 100", None)
    assert call["schema"]["properties"]["amount"]["type"] == "number"
    assert call["task"].startswith("refund")
    found = gateway.run(run)
    assert (found["state"], found["waiting_for"], found["approvals"]) == ("waiting", "approval", 1)
    assert done(books) == []

    answer = decide(gateway, call["call"], "approved")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["verdict"], answer.json()["by"]) == ("approved", "ann")
    assert answer.json()["at"] > call["requested_at"]
    result = gateway.finished(run)
    assert (result["state"], result["output"]) == ("success", "refund 500 is done")
    assert (result["waiting_for"], result["approvals"]) == (None, 0)
    assert done(books) == ["refund 500"]
    told = gateway.request("GET", f"/v1/approvals/{call['call']}").json()
    assert (told["state"], told["decision"]["by"]) == ("decided", "ann")


def test_a_corrected_call_is_made_otherwise_and_the_model_is_told(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    wrong = decide(gateway, call["call"], "corrected", arguments={"file": 1, "amount": "much"})
    assert wrong.status_code == 422
    assert "argument file" in wrong.json()["detail"]
    assert "argument amount" in wrong.json()["detail"]
    answer = decide(gateway, call["call"], "corrected", arguments={"file": str(books), "amount": 50}, feedback="Half.")
    assert (answer.status_code, answer.json()["verdict"]) == (200, "corrected"), answer.text
    result = gateway.finished(run)
    assert done(books) == ["refund 50"]
    assert holds(result["output"], '"amount":50', "Half.", "refund 50 is done")


def test_nobody_decides_in_time(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("hasty", f"refund {books} 1")
    (call,) = waiting(gateway, run)
    assert 0 < call["expires_at"] - call["requested_at"] <= 2.001
    result = gateway.finished(run)
    assert (result["state"], done(books)) == ("success", [])
    assert "'refund'" in result["output"]
    assert error_codes(gateway.run(run, full="true")) == ["expired"]
    late = decide(gateway, call["call"], "approved")
    assert (late.status_code, late.json()["code"]) == (410, "approval-expired")
    assert waiting(gateway, run, 0) == []


def test_a_tool_may_say_itself_that_it_needs_a_word(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"wipe {books}")
    (call,) = waiting(gateway, run)
    assert call["name"] == "wipe"
    assert decide(gateway, call["call"], "rejected").status_code == 200
    assert gateway.finished(run)["state"] == "success"
    assert done(books) == []
    tools = {tool["name"]: tool for tool in gateway.request("GET", "/v1/tools").json()["tools"]}
    assert tools["wipe"]["approval"] == "always"


# --- several words


def test_of_two_decisions_at_once_exactly_one_counts(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    start = threading.Barrier(6)

    def post(number: int) -> httpx2.Response:
        start.wait()
        return decide(gateway, call["call"], "approved" if number % 2 else "rejected", by=f"p{number}")

    with ThreadPoolExecutor(6) as people:
        answers = list(people.map(post, range(6)))
    won = {answer.json()["verdict"] for answer in answers if answer.status_code == 200}
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [409] * 3
    assert len(won) == 1
    assert len({answer.json()["by"] for answer in answers if answer.status_code == 200}) == 1
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert refused["code"] == "already-decided"
    gateway.finished(run)
    assert len(events_of(gateway, run, "approval.decided")) == 1
    assert len(done(books)) == (won == {"approved"})
    again = decide(gateway, call["call"], next(iter(won)))
    assert again.status_code == 200


def test_calls_that_nobody_holds(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    for unknown in (f"{run}_1_7", "nobody_1_0", run, "a b"):
        assert decide(gateway, unknown, "approved").status_code == 404, unknown
        assert gateway.request("GET", f"/v1/approvals/{unknown}").status_code == 404, unknown
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={})
    assert gateway.finished(run)["state"] == "cancelled"
    late = decide(gateway, call["call"], "approved")
    assert (late.status_code, late.json()["code"]) == (410, "run-ended")
    assert waiting(gateway, run, 0) == []
    assert gateway.request("GET", f"/v1/approvals/{call['call']}").json()["state"] == "dropped"
    assert done(books) == []


def test_the_list_has_pages_that_decisions_do_not_upset(gateway: Gateway, books: Path) -> None:
    runs = [gateway.submit("careful", f"refund {books} {n}") for n in range(1, 4)]
    for run in runs:
        waiting(gateway, run)
    query: dict[str, Any] = {"agent": "careful", "limit": 1}
    seen: list[str] = []
    while True:
        page = gateway.request("GET", "/v1/approvals", params=query).json()
        for call in page["approvals"]:
            seen.append(call["run"])
            assert decide(gateway, call["call"], "rejected").status_code == 200
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert sorted(seen) == sorted(runs)
    assert gateway.request("GET", "/v1/approvals", params={"before": "x"}).status_code == 422


# --- in a tree


def test_a_members_held_call_is_seen_and_decided_from_the_root(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("chief", f"have clerk: refund {books} 500")
    (call,) = waiting(gateway, run)
    assert (call["tree"], call["agent"]) == (run, "clerk")
    assert call["run"] != run
    root = gateway.run(run)
    assert (root["state"], root["waiting_for"], root["approvals"]) == ("running", None, 1)
    assert (root["children"][0]["state"], root["children"][0]["waiting_for"]) == ("waiting", "approval")
    assert decide(gateway, call["call"], "approved").status_code == 200
    assert "refund 500 is done" in gateway.finished(run)["output"]
    names = [name for name, data in gateway.events(run) if data.get("run") == call["run"]]
    assert "approval.requested" in names
    assert "approval.decided" in names


def test_a_delegation_may_wait_too_and_go_to_another_member(gateway: Gateway, books: Path) -> None:
    run = gateway.submit("guarded", f"have clerk: note {books}")
    (call,) = waiting(gateway, run)
    assert (call["name"], call["kind"], call["run"]) == ("clerk", "member", run)
    assert call["schema"]["required"] == ["task"]
    wrong = decide(gateway, call["call"], "corrected", tool="careful", arguments={})
    assert (wrong.status_code, "task" in wrong.json()["detail"]) == (422, True)
    answer = decide(gateway, call["call"], "corrected", tool="careful")
    assert answer.status_code == 200, answer.text
    result = gateway.finished(run)
    assert [child["agent"] for child in result["children"]] == ["careful"]
    assert done(books) == ["note noted"]


# --- through the death of everything


def test_a_decision_while_the_agent_is_down_is_kept(stack: Stack, gateway: Gateway, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    stack.services["clerk"].terminate()
    agents = {agent["name"]: agent for agent in gateway.request("GET", "/v1/agents").json()["agents"]}
    assert (agents["clerk"]["replicas"], agents["clerk"]["away_since"] is None) == ([], False)
    answer = decide(gateway, call["call"], "approved")
    assert (answer.status_code, answer.json()["at"]) == (202, None), answer.text
    assert gateway.run(run)["approvals"] == 1
    stack.services["clerk"].start()
    assert gateway.finished(run)["output"] == "refund 500 is done"
    assert decide(gateway, call["call"], "approved").status_code == 200
    assert decide(gateway, call["call"], "rejected").status_code == 409


def test_a_wait_survives_the_death_of_every_process(stack: Stack, gateway: Gateway, books: Path) -> None:
    """Nothing runs at all while two runs wait; then everything is started again."""
    run = gateway.submit("chief", f"have clerk: refund {books} 500")
    other = gateway.submit("clerk", f"refund {books} 700")
    (call,), (another,) = waiting(gateway, run), waiting(gateway, other)
    for service in stack.services.values():
        service.kill()
    stack.nats.kill()
    stack.nats.start()
    stack.start_all()
    assert [one["call"] for one in waiting(gateway, run)] == [call["call"]]
    assert decide(gateway, call["call"], "approved").status_code in (200, 202)
    assert decide(gateway, another["call"], "rejected", feedback="no").status_code in (200, 202)
    assert "refund 500 is done" in gateway.finished(run)["output"]
    assert gateway.finished(other)["state"] == "success"
    assert error_codes(gateway.run(other, full="true")) == ["rejected"]
    assert done(books) == ["refund 500"]
