"""Tests of what a run can do, seen from outside: real processes, a scripted model, the HTTP API and the command
line."""

import asyncio
import json
from pathlib import Path
from typing import Any

from cadre.errors import ExitCode
from harness.command import Commands
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "features"


def events_of(gateway: Gateway, run: str, name: str) -> list[dict[str, Any]]:
    return [data for event, data in gateway.events(run) if event == name]


# --- what comes with a task


def test_arguments_of_the_command_line_are_json_or_text(cadre: Commands) -> None:
    """A text that only Python takes for JSON stays a text."""
    done = cadre("run", "solo", "work with variables", "--input", "city=NaN", "--input", "numbers=[4, 5]")
    assert (done.returncode, done.stdout) == (0, "NaN / 9\n"), done.stderr


def test_a_task_of_600_kilobytes(gateway: Gateway) -> None:
    """More than a message of the bus may have."""
    task = "a long task: " + "abcde " * 100_000
    assert gateway.answer("solo", task) >= 600_000


def test_a_conversation_on_the_terminal(cadre: Commands) -> None:
    said = "remember the hoopoe\n\nwhat did I say?\n/new\nwhat did I say?\n"
    done = cadre("chat", "solo", "--session", "chatted", said=said)
    assert done.returncode == 0, done.stderr
    _, again, fresh = done.stdout.split("first: ")
    assert "remember the hoopoe" in again
    assert "hoopoe" not in fresh
    assert "cadre chat solo --session chatted" in done.stderr
    more = cadre("chat", "solo", "--session", "chatted", said="remember the owl\n")
    assert more.stdout.strip() == "remembered"


# --- what the model does


def test_a_model_that_is_away_is_replaced_by_one_that_a_schema_holds(gateway: Gateway) -> None:
    run = gateway.submit("held", "mismatch")
    result = gateway.finished(run)
    assert result["state"] == "success", result["error"]
    assert result["output"].endswith(" / 5")
    called = [data["event"] for data in events_of(gateway, run, "model.called")]
    assert [(event["fallback"], event["model"]) for event in called] == [(0, ""), *[(1, "scripted")] * 3]
    assert "http://127.0.0.1:9/v1" in called[1]["reason"]
    accepted = events_of(gateway, run, "run.accepted")[0]["event"]
    assert accepted["spec"]["model"]["fallbacks"] == [{"name": "scripted", "calls": "schema", "vision": False}]


# --- tools


def test_calls_of_one_step_run_at_the_same_time_in_two_executors(gateway: Gateway) -> None:
    run = gateway.submit("solo", "both at once")
    assert gateway.finished(run)["output"] == "napped / snoozed"
    answered = events_of(gateway, run, "tool.answered")
    assert len({data["event"]["executor"] for data in answered}) == 2
    ends = [data["at"] for data in answered]
    starts = [data["at"] - data["event"]["seconds"] for data in answered]
    assert max(starts) < min(ends)


def test_an_output_of_two_megabytes_is_cut_for_the_model_and_kept_whole(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("solo", "long story")
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert 1_000 < result["output"] < 25_000
    [data] = events_of(gateway, run, "tool.answered")

    async def whole() -> bytes:
        async with stack.platform() as platform:
            return await platform.blobs.get(data["event"]["blob"])

    assert asyncio.run(whole()) == b"x" * 2_000_000


# --- delegation


def test_three_levels_deep_and_no_circle(gateway: Gateway) -> None:
    run = gateway.submit("one", "begin")
    result = gateway.finished(run)
    assert result["state"] == "success"
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


def test_a_childs_words_are_heard_while_it_writes(gateway: Gateway) -> None:
    run = gateway.submit("one", "begin")
    heard = list(gateway.events(run))
    deltas = [data for name, data in heard if name == "delta" and data["run"].count("_") == 4]
    said = "".join(data["text"] for data in deltas)
    assert len(deltas) > 2
    # Who comes late has missed the beginning.
    assert "I had better ask the one at the top.".endswith(said)
    numbers = [data["seq"] for data in deltas]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {data["agent"] for data in deltas} == {"three"}
    assert heard[-1] == ("end", {"run": run, "state": "success"})


def test_a_team_may_be_whoever_has_a_label(gateway: Gateway) -> None:
    run = gateway.submit("picker", "begin")
    result = gateway.finished(run)
    assert "leaf work is done" in result["output"]
    [offer] = events_of(gateway, run, "toolset.changed")[:1]
    assert [member["name"] for member in offer["event"]["members"]] == ["three"]


# --- HTTP and command line


def test_json_output_is_one_value_on_stdout(cadre: Commands) -> None:
    done = cadre("run", "solo", "call in text", "-o", "json")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert (result["state"], result["output"], result["agent"]) == ("success", "heard spoken", "solo")
    shown = json.loads(cadre("show", result["id"], "-o", "json").stdout)
    assert shown["id"] == result["id"]


def test_a_run_that_took_too_long_is_told_as_json_too(cadre: Commands) -> None:
    done = cadre("run", "solo", "take long", "-o", "json", "--timeout", 0.5)
    assert done.returncode == ExitCode.TIMEOUT
    assert "0.5" in done.stderr
    told = json.loads(done.stdout)
    assert (told["agent"], told["task"]) == ("solo", "take long")
    assert told["id"] in done.stderr
    assert told["state"] == "running"
    assert cadre("cancel", told["id"]).returncode == 0


def test_a_run_cancelled_from_another_terminal(gateway: Gateway, cadre: Commands) -> None:
    following = cadre.start("run", "solo", "take long")
    found: list[str] = []

    def begun() -> bool:
        listed = gateway.request("GET", "/v1/runs", params={"agent": "solo", "state": "running"}).json()["runs"]
        found[:] = [run["id"] for run in listed]
        return bool(found)

    eventually(begun, what="the run has begun")
    gateway.wait_for(found[0], "tool.called")
    done = cadre("cancel", "@last", "--reason", "not needed")
    assert (done.returncode, done.stdout) == (0, f"{found[0]} cancelled\n"), done.stderr
    _, shown = following.communicate(timeout=patience())
    assert following.returncode == 6
    assert shown.splitlines()[-1].endswith("ended as cancelled: Cancelled: not needed")


# --- a long journal


def test_a_long_journal_survives_a_kill(stack: Stack, gateway: Gateway) -> None:
    """Ninety steps are 180 entries, more than one block of back-pointers names."""
    run = gateway.submit("solo", "count to 90", max_steps=100)
    for name, data in gateway.events(run):
        if name != "delta" and data.get("n", 0) >= 170:
            break
    stack.services["solo"].kill()
    assert gateway.run(run)["state"] == "running"
    stack.services["solo"].start()
    assert gateway.succeeded(run) == "90 numbers"
    calls = [data["event"]["call"] for data in events_of(gateway, run, "tool.called")]
    assert len(calls) == len(set(calls)) == 90
