"""What a run can do, seen from outside: real processes, a scripted model, the HTTP API and the command line."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cadre.local.exit_codes import ExitCode
from cadre.service.frame import open_platform
from cadre.settings import Settings
from harness.command import Commands, commands_of
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "features"

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def cadre(stack: Stack, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_of(stack, tmp_path_factory.mktemp("cli"))


def answer(stack: Stack, gateway: Gateway, agent: str, task: str, **fields: Any) -> Any:
    """The output of a run that succeeded."""
    result = gateway.finished(gateway.submit(agent, task, **fields))
    assert result["state"] == "success", (result["error"], stack.logs())
    return result["output"]


def events_of(gateway: Gateway, run: str, name: str) -> list[dict[str, Any]]:
    return [data for event, data in gateway.events(run) if event == name]


# --- what comes with a task


def test_additional_arguments_are_named_in_the_task_and_put_into_calls(
    stack: Stack, gateway: Gateway
) -> None:
    """The model writes the name of a variable; the tool gets its value, whatever its type."""
    given = {"city": "Oslo, at the fjord", "numbers": [1, 2, 3]}
    output = answer(stack, gateway, "solo", "work with variables", additional_args=given)
    assert output == "Oslo, at the fjord / 6"


def test_arguments_of_the_command_line_are_json_or_text(cadre: Commands) -> None:
    """What only Python takes for JSON is text."""
    done = cadre("run", "solo", "work with variables", "--arg", "city=NaN", "--arg", "numbers=[4, 5]")
    assert (done.returncode, done.stdout) == (0, "NaN / 9\n"), done.stderr


def test_an_image_reaches_the_model_once_in_each_request(stack: Stack, gateway: Gateway) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    assert answer(stack, gateway, "solo", "a picture", images=[url]) == f"1 image, 1 image, {url}"


def test_a_task_of_600_kilobytes(stack: Stack, gateway: Gateway) -> None:
    """More than a message of the bus may have."""
    task = "a long task: " + "abcde " * 100_000
    assert answer(stack, gateway, "solo", task) >= 600_000


def test_a_session_goes_on_with_the_memory_of_its_last_run(stack: Stack, gateway: Gateway) -> None:
    answer(stack, gateway, "solo", "remember the hoopoe", session="birds")
    again = answer(stack, gateway, "solo", "what did I say?", session="birds", reset=False)
    assert "remember the hoopoe" in again
    fresh = answer(stack, gateway, "solo", "what did I say?", session="birds")
    assert "hoopoe" not in fresh


def test_a_session_is_busy_until_its_run_has_ended(gateway: Gateway) -> None:
    run = gateway.submit("solo", "take long", session="busy")
    gateway.wait_for(run, "tool.called")
    follower = {"agent": "solo", "task": "what did I say?", "session": "busy", "reset": False}
    refused = gateway.request("POST", "/v1/runs", json=follower)
    assert (refused.status_code, refused.json()["code"]) == (409, "session-busy")
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={})
    assert gateway.finished(run)["state"] == "cancelled"
    assert gateway.request("POST", "/v1/runs", json=follower).status_code == 202


# --- what the model does


def test_the_step_limit_ends_in_an_answer(stack: Stack, cadre: Commands) -> None:
    done = cadre("run", "solo", "never end", "--max-steps", 2)
    assert done.returncode == 7, stack.logs()
    assert done.stdout == "That is as far as I came.\n"
    assert "AgentMaxStepsError" in done.stderr.splitlines()[-1]


def test_calls_are_read_from_text_when_the_model_returns_none(stack: Stack, gateway: Gateway) -> None:
    assert answer(stack, gateway, "solo", "call in text") == "heard spoken"


def test_an_answer_without_any_call_is_an_error_that_the_model_mends(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("solo", "chatty")
    result = gateway.finished(run)
    assert (result["state"], result["output"]) == ("success", "recovered"), stack.logs()
    steps = [data["event"] for data in events_of(gateway, run, "step.finished")]
    assert steps[0]["error"]["type"] == "AgentParsingError"
    assert not steps[1].get("error")


# --- tools


def test_calls_of_one_step_run_at_the_same_time_in_two_executors(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("solo", "both at once")
    assert gateway.finished(run)["output"] == "napped / snoozed", stack.logs()
    answered = events_of(gateway, run, "tool.answered")
    assert len({data["event"]["executor"] for data in answered}) == 2
    ends = [data["at"] for data in answered]
    starts = [data["at"] - data["event"]["seconds"] for data in answered]
    assert max(starts) < min(ends)


def test_an_output_of_two_megabytes_is_cut_for_the_model_and_kept_whole(
    stack: Stack, gateway: Gateway
) -> None:
    run = gateway.submit("solo", "long story")
    result = gateway.finished(run)
    assert result["state"] == "success", stack.logs()
    assert 1_000 < result["output"] < 25_000
    [data] = events_of(gateway, run, "tool.answered")

    async def whole() -> bytes:
        platform = await open_platform("test", Settings(nats_url=stack.nats.url))
        try:
            return await platform.blobs.get(data["event"]["blob"])
        finally:
            await platform.registry.stop()
            await platform.nc.close()

    assert asyncio.run(whole()) == b"x" * 2_000_000


# --- delegation


def test_three_levels_deep_and_no_circle(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("one", "begin")
    result = gateway.finished(run)
    assert result["state"] == "success", stack.logs()
    [two] = result["children"]
    [three] = two["children"]
    assert [(child["agent"], child["state"]) for child in (two, three)] == [
        ("two", "success"),
        ("three", "success"),
    ]
    assert three["children"] == []
    assert "one > two > three" in result["output"]
    [refused] = events_of(gateway, run, "call.refused")
    assert (refused["run"], refused["event"]["name"]) == (three["id"], "one")


def test_a_childs_words_are_heard_while_it_writes(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("one", "begin")
    heard = list(gateway.events(run))
    deltas = [data for name, data in heard if name == "delta" and data["run"].count("_") == 4]
    said = "".join(data["text"] for data in deltas)
    assert len(deltas) > 2, stack.logs()
    # Who comes late has missed the beginning.
    assert "I had better ask the one at the top.".endswith(said)
    numbers = [data["seq"] for data in deltas]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {data["agent"] for data in deltas} == {"three"}
    assert heard[-1] == ("end", {"run": run, "state": "success"})


def test_a_team_may_be_whoever_has_a_label(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("picker", "begin")
    result = gateway.finished(run)
    assert "leaf work is done" in result["output"], stack.logs()
    [offer] = events_of(gateway, run, "offer.changed")[:1]
    assert [member["name"] for member in offer["event"]["members"]] == ["three"]


# --- HTTP and command line


def test_waiting_for_the_full_result(gateway: Gateway) -> None:
    asked = {"agent": "solo", "task": "call in text", "return_full_result": True}
    reply = gateway.request("POST", "/v1/runs", json=asked, headers={"Prefer": "wait=30"})
    assert reply.status_code == 200
    result = reply.json()
    assert (result["state"], result["output"], result["steps"]) == ("success", "heard spoken", 2)
    assert result["usage"]["model_calls"] == 2
    assert result["started_at"] < result["ended_at"]
    assert [step["type"] for step in result["memory"]] == ["task", "action", "action", "answer"]


def test_a_key_sent_twice_is_one_run(gateway: Gateway) -> None:
    asked = {"agent": "solo", "task": "remember the key"}
    first, second = (
        gateway.request("POST", "/v1/runs", json=asked, headers={"Idempotency-Key": "k1"}).json()["id"]
        for _ in range(2)
    )
    assert first == second
    gateway.finished(first)
    third = gateway.request("POST", "/v1/runs", json=asked, headers={"Idempotency-Key": "k1"}).json()["id"]
    assert third == first
    assert len(events_of(gateway, first, "run.accepted")) == 1


def test_json_output_is_one_value_on_stdout(stack: Stack, cadre: Commands) -> None:
    done = cadre("run", "solo", "call in text", "-o", "json")
    assert done.returncode == 0, stack.logs()
    result = json.loads(done.stdout)
    assert (result["state"], result["output"], result["agent"]) == ("success", "heard spoken", "solo")
    shown = json.loads(cadre("show", result["id"], "-o", "json").stdout)
    assert shown["id"] == result["id"]


def test_a_run_that_took_too_long_is_told_as_json_too(stack: Stack, cadre: Commands) -> None:
    done = cadre("run", "solo", "take long", "-o", "json", "--timeout", 0.5)
    assert done.returncode == ExitCode.TIMEOUT, stack.logs()
    assert "did not end within 0.5 s and was cancelled" in done.stderr
    told = json.loads(done.stdout)
    assert (told["agent"], told["task"]) == ("solo", "take long")
    assert told["id"] in done.stderr


def test_a_run_cancelled_from_another_terminal(gateway: Gateway, cadre: Commands) -> None:
    following = cadre.start("run", "solo", "take long")
    found: list[str] = []

    def begun() -> bool:
        listed = gateway.request("GET", "/v1/runs", params={"agent": "solo", "state": "running"}).json()[
            "runs"
        ]
        found[:] = [run["id"] for run in listed]
        return bool(found)

    eventually(begun, what="the run has begun")
    gateway.wait_for(found[0], "tool.called")
    done = cadre("cancel", "@last", "--reason", "not needed")
    assert done.returncode == 0, done.stderr
    _, told = following.communicate(timeout=30)
    assert following.returncode == 6
    assert told.splitlines()[-1].endswith("ended as cancelled: Cancelled: not needed")


# --- a long journal


def test_a_journal_behind_its_snapshot_survives_a_kill(stack: Stack, gateway: Gateway) -> None:
    """Sixty steps are over a hundred entries; the agent dies behind the first snapshot and goes on from it."""
    run = gateway.submit("solo", "count to 60", max_steps=70)
    for name, data in gateway.events(run):
        if name != "delta" and data.get("n", 0) >= 70:
            break
    stack.services["solo"].kill()
    assert gateway.run(run)["state"] == "running"
    stack.services["solo"].start()
    result = gateway.finished(run)
    assert (result["state"], result["output"]) == ("success", "60 numbers"), stack.logs()
    calls = [data["event"]["call"] for data in events_of(gateway, run, "tool.called")]
    assert len(calls) == len(set(calls)) == 60
