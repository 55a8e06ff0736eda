"""Integers keep every digit on each way through a deployment: model, tools, people, the command line, doors."""

import json
from pathlib import Path
from typing import Any

import pytest

from cadre.client import Client
from harness.command import Commands
from harness.people import decide, waiting
from harness.stack import Gateway

TEAM = Path(__file__).parent / "digits"

BEYOND_53 = 2**53 + 1
BEYOND_64 = 2**64 + 1
LONG = 123456789012345678901234567890
ABOUT = {"ids": [BEYOND_64, -(2**63) - 1], "rate": 1.0}


def paid(gateway: Gateway, run: str) -> dict[str, Any]:
    """Return the input that the tool got in the one call of the run."""
    assert gateway.finished(run)["state"] == "success"
    (answered,) = [data["event"] for event, data in gateway.events(run) if event == "tool.answered"]
    found: dict[str, Any] = answered["output"]
    assert found["digits"] == str(found["account"])
    return found


def given(gateway: Gateway, run: str) -> tuple[int, Any]:
    """Approve the waiting call and return what the tool got for the variables that the model named."""
    (call,) = waiting(gateway, run)
    assert decide(gateway, call["call"], "approved").status_code == 200
    found = paid(gateway, run)
    return found["account"], found["about"]


def held(gateway: Gateway) -> tuple[str, dict[str, Any]]:
    run = gateway.submit("payer", "pay")
    (call,) = waiting(gateway, run)
    return run, call


def test_what_a_model_writes_is_shown_asked_about_and_given_to_the_tool(gateway: Gateway) -> None:
    run, call = held(gateway)
    assert call["arguments"] == {"account": BEYOND_53, "amount": 500, "about": ABOUT}
    assert decide(gateway, call["call"], "approved").status_code == 200
    assert paid(gateway, run) == {
        "account": BEYOND_53,
        "digits": str(BEYOND_53),
        "amount": 500,
        "about": ABOUT,
    }


@pytest.mark.parametrize("account", [BEYOND_53 + 2, 2**63, 2**64 - 1, BEYOND_64, LONG, 10**400])
def test_what_a_person_writes_instead_is_given_to_the_tool(gateway: Gateway, account: int) -> None:
    run, call = held(gateway)
    body = {**call["arguments"], "account": account}
    answer = decide(gateway, call["call"], "corrected", arguments=body)
    assert (answer.status_code, answer.json()["arguments"]) == (200, body)
    assert paid(gateway, run)["account"] == account


def test_by_the_command_line_one_argument_is_changed_and_the_others_keep_their_digits(
    gateway: Gateway, cadre: Commands
) -> None:
    run, call = held(gateway)
    shown = cadre("approvals")
    assert str(BEYOND_53) in shown.stdout
    done = cadre("correct", call["call"], "--set", "amount=90")
    assert done.returncode == 0, done.stderr
    found = paid(gateway, run)
    assert (found["account"], found["amount"], found["about"]) == (BEYOND_53, 90, ABOUT)
    assert str(BEYOND_64) in cadre("show", run).stdout


def test_by_the_client_in_python(gateway: Gateway) -> None:
    run, call = held(gateway)
    with Client(gateway.service.url) as client:
        decided = client.attach(run).correct(call["call"], arguments={**call["arguments"], "account": LONG})
        assert decided.arguments is not None
        assert decided.arguments["account"] == LONG
        assert str(LONG) in client.attach(run).result()
    assert paid(gateway, run)["account"] == LONG


def test_arguments_beside_the_task_and_their_fork(gateway: Gateway, cadre: Commands) -> None:
    arguments = ["--input", f"account={LONG}", "--input", f"about={json.dumps(ABOUT)}"]
    done = cadre("run", "payer", "pay from variables", *arguments, "--detach")
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[0]
    assert given(gateway, run) == (LONG, ABOUT)

    def forked(**changes: Any) -> str:
        answer = gateway.request("POST", f"/v1/runs/{run}/fork", json={"at": 1, **changes})
        return str(answer.json()["id"])

    assert given(gateway, forked(task="pay from variables")) == (LONG, ABOUT)
    other = {"account": BEYOND_64, "about": {}}
    assert given(gateway, forked(inputs=other)) == (BEYOND_64, {})


def test_numbers_that_no_double_is_near_are_refused_and_nothing_begins(gateway: Gateway, cadre: Commands) -> None:
    run, call = held(gateway)
    body = '{"verdict": "corrected", "arguments": {"account": 1, "amount": 1e400, "about": {}}}'
    answer = gateway.request(
        "POST", f"/v1/approvals/{call['call']}", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert gateway.run(run)["approvals"] == 1
    for command in (
        ("correct", call["call"], "--set", "amount=1e400"),
        ("correct", call["call"], "--arguments", '{"amount": 1e400}'),
        ("signal", run, "go", "1e400"),
        ("correct", call["call"], "--arguments", '{"account": 1, "account": 2}'),
        ("signal", run, "go", "NaN"),
    ):
        done = cadre(*command)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
