"""Tests of what goes wrong in a run, over the bus, for both kinds of agents: what ends it, what the model reads and
mends."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.command import commands_of
from harness.patience import eventually
from harness.people import error_codes, events_of, observed
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "errors"
KINDS = ["caller", "coder"]


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.add("sandbox", "cadre_sandbox", start=False)


def said(kind: str, name: str, **arguments: Any) -> str:
    """Return what a model of this kind writes for a call of one function."""
    if kind in ("coder", "careful_coder"):
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return f"Thought: next.\n<code>\nprint({name}({given}))\n</code>"
    return json.dumps({"name": name, "arguments": arguments})


def answer(kind: str, value: Any) -> str:
    if kind in ("coder", "careful_coder"):
        return f"Thought: done.\n<code>\nfinal_answer({value!r})\n</code>"
    return said(kind, "final_answer", answer=value)


def play(gateway: Gateway, agent: str, task: str, *parts: str, **fields: Any) -> dict[str, Any]:
    """The end of a run whose model writes these parts."""
    return gateway.finished(gateway.submit(agent, script(task, *parts), **fields))


def script(task: str, *parts: str) -> str:
    """A task, and what its model writes, on lines of their own."""
    return "\n===\n".join([task, *parts])


# --- generation errors


@pytest.mark.parametrize("kind", KINDS)
def test_a_generation_error_ends_the_run_after_its_retries(gateway: Gateway, kind: str) -> None:
    result = play(gateway, kind, "It goes down.", said(kind, "add", a=1, b=2))
    assert (result["state"], result["error"]["type"]) == ("error", "AgentGenerationError")
    assert "the graphics card is on fire" in result["error"]["message"]
    assert len(events_of(gateway, result["id"], "model.deferred")) == 1, "model.retries of this agent"
    assert "3" in observed(result), "what it had done is kept"


# --- what becomes an observation


@pytest.mark.parametrize("kind", KINDS)
def test_a_parsing_error_is_an_observation(gateway: Gateway, kind: str) -> None:
    result = play(gateway, kind, "Chat.", "Let me think.", answer(kind, "thought"))
    assert (result["state"], result["output"]) == ("success", "thought")
    first, last = events_of(gateway, result["id"], "step.finished")
    assert first["error"]["type"] == "AgentParsingError"
    assert not last.get("error")


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_calls_are_observations(gateway: Gateway, kind: str) -> None:
    result = play(
        gateway,
        kind,
        "Err.",
        said(kind, "multiply", a=1, b=2),
        said(kind, "add", a="one", b=2),
        said(kind, "add", a=1),
        answer(kind, "mended"),
    )
    assert (result["state"], result["output"]) == ("success", "mended")
    told = observed(result)
    assert "multiply" in told
    assert "argument a" in told
    assert "b" in told
    assert len(events_of(gateway, result["id"], "step.finished")) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_error_is_an_observation(gateway: Gateway, kind: str) -> None:
    result = play(gateway, kind, "Fall.", said(kind, "fall", height=3), answer(kind, "landed"))
    assert (result["state"], result["output"]) == ("success", "landed")
    assert "fell from 3" in observed(result)
    [failed] = events_of(gateway, result["id"], "tool.answered")
    assert failed["error"]["type"] == "AgentToolExecutionError"


# --- the end of the steps


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_last_step_the_answer_comes_from_memory(gateway: Gateway, kind: str) -> None:
    again = said(kind, "add", a=1, b=2)
    result = play(gateway, kind, "Never done.", again, again, max_steps=2)
    assert (result["state"], result["error"]["type"]) == ("max_steps_error", "AgentMaxStepsError")
    assert result["output"].startswith("The record ends with Observation:")
    assert "3" in result["output"]
    assert result["usage"]["steps"] == 2
    for step in result["memory"][1:-1]:
        assert step["usage"]["input_tokens"] > 0
        assert step["started_at"] < step["ended_at"]


# --- answers that do not count


@pytest.mark.parametrize("kind", ["careful", "careful_coder"])
def test_an_answer_counts_when_it_fits_and_passes(gateway: Gateway, kind: str) -> None:
    """`adds_up` is offered to neither of them, and needs no person though the first is restricted."""
    result = play(
        gateway,
        kind,
        "What do 10 and 4 give?",
        answer(kind, {"total": 14}),
        answer(kind, {"sum": 13}),
        answer(kind, {"sum": 15}),
        answer(kind, {"sum": 14}),
    )
    assert (result["state"], result["output"]) == ("success", {"sum": 14})
    assert error_codes(result) == ["not-passed"] * 3
    assert holds(observed(result), "'total'", "answer.sum != 13'", "'adds_up'")
    assert len(events_of(gateway, result["id"], "answer.proposed")) == 2
    offered = events_of(gateway, result["id"], "toolset.changed")
    assert {tool["name"] for offer in offered for tool in offer["tools"]} == {"add"}


def test_a_check_that_fails_says_why(gateway: Gateway, stack: Stack, tmp_path: Path) -> None:
    result = play(gateway, "careful", "Add 1, 2 and 3.", answer("careful", {"sum": 6}), max_steps=1)
    assert result["state"] == "max_steps_error"
    assert "two numbers are as many as can be checked" in observed(result)
    lines = commands_of(stack, tmp_path)("show", result["id"], "--follow").stderr
    assert "adds_up" in lines
    assert "adds_up" in lines


@pytest.mark.parametrize("victim", ["careful", "tools"])
def test_a_service_killed_while_an_answer_is_checked(
    gateway: Gateway, stack: Stack, tmp_path: Path, victim: str
) -> None:
    book = tmp_path / "book"
    task = f"Add 20 and 22, see {book}"
    run = gateway.submit("careful", script(task, *[answer("careful", {"sum": 42})] * 2))
    eventually(book.exists, what="the check is at work")
    stack.services[victim].kill()
    Path(f"{book}.go").touch()
    stack.services[victim].start()
    assert gateway.succeeded(run) == {"sum": 42}
    checked = events_of(gateway, run, "answer.checked")
    # Like any tool with effects a check is not run twice for one call: its outcome is unknown, which the model reads,
    # and proposes its answer again.
    assert len(checked) == (2 if victim == "tools" else 1)
    assert book.read_text() == "at work\n" * len(checked)
    assert checked[-1].get("problem", "") == ""


# --- what a manager reads


@pytest.mark.parametrize("kind", KINDS)
def test_parallel_calls_of_one_member_share_nothing(gateway: Gateway, kind: str) -> None:
    """In smolagents they share one memory, and their reports are mixed up."""
    tasks = [
        "~~~".join([f"Part {n}.", said("diligent", "add", a=n, b=100), answer("diligent", f"part {n} done"), ""])
        for n in range(8)
    ]
    if kind == "caller":
        ask = "\n".join(said(kind, "diligent", task=task) for task in tasks)
    else:
        ask = f"<code>\nfor report in gather(*[diligent.later(task=t) for t in {tasks!r}]):\n    print(report)\n</code>"
    result = play(gateway, kind, "Divide it.", ask, answer(kind, "all done"))
    assert (result["state"], result["output"]) == ("success", "all done")
    reports = [call["observation"] for call in result["memory"][1]["calls"]]
    for n, report in enumerate(reports):
        assert [other for other in range(8) if f"part {other} done" in report] == [n]
    children = result["children"]
    assert len(children) == 8
    used = [child["usage"]["input_tokens"] for child in children]
    assert all(used)
    assert result["usage"]["input_tokens"] == result["own_usage"]["input_tokens"] + sum(used)
    assert result["usage"]["model_calls"] == 2 + 8 * 2


def test_a_member_that_tells_how_it_worked(gateway: Gateway, stack: Stack, tmp_path: Path) -> None:
    parts = [said("diligent", "add", a=20, b=22), answer("diligent", "It is 42."), ""]
    result = play(gateway, "chief", "Add up.", *parts)
    assert result["state"] == "success"
    report, _, work = result["output"].partition("<summary_of_work>")
    assert "It is 42." in report
    assert "Add up." in work
    assert '"a":20' in work.replace(" ", "")
    assert "42" in work
    assert result["usage"]["model_calls"] == 2 + 2, "what a member used counts for its manager"
    cadre = commands_of(stack, tmp_path)
    played = cadre("show", result["id"], "--replay", "--full").stdout.splitlines()
    begin = next(place for place, line in enumerate(played) if line.startswith("    diligent  "))
    assert played[begin - 1].startswith("  call diligent ")
    assert any(line.startswith("      call add ") for line in played[begin:])
    assert played[-1].startswith("usage  ")
    assert "diligent  " not in cadre("show", result["id"], "--replay").stdout
    assert json.loads(cadre("show", result["id"], "--replay", "-o", "json").stdout)["id"] == result["id"]
    assert "--replay goes with" in cadre("show", result["id"], "--replay", "--tree").stderr
