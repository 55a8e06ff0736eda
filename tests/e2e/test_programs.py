"""Programs of the package `openai` as durable agents: killed at every call, and what a run has of them besides."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.command import commands_of
from harness.patience import eventually, patience
from harness.program_model import EFFECTS, MODEL_CALLS
from harness.program_stack import Chain, ProgramStack, await_program, program_stack

HERE = Path(__file__).parent / "programs"
FIRST_TEXT = 2
"""The place in a stream of the model's first text."""

TASKS = {"whole": "Book four.", "streamed": "stream: book four."}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramStack]:
    folder = tmp_path_factory.mktemp("programs")
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    with program_stack(folder) as found:
        odd = f"{HERE / 'odd.py'}:main"
        found.add("plain", f"{HERE / 'plain.py'}:main", apart=True)
        found.add("odd", odd)
        found.add("held", odd, more=", hold: 1s", spec="  approvals: {book: always}")
        found.add("poor", odd, spec="  limits: {budget: {tokens: 250}}")
        found.stack.add(*("direct", "cadre.cli.main", "member", odd, "--name", "direct", "--tool", "book"), start=False)
        found.agents += 1
        found.add("chief", odd, spec="  team: [odd]")
        found.add("bare", f"{HERE / 'bare.py'}:main", python=str(bare / "bin" / "python"))
        found.start(HERE / "booking.py")
        yield found


@pytest.mark.parametrize("way", TASKS)
def test_a_program_that_is_left_alone(deployment: ProgramStack, way: str) -> None:
    points, answer = deployment.points("plain", TASKS[way])
    assert answer.startswith("all booked")
    assert len(deployment.model.asked) == MODEL_CALLS
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"]
    assert len(points) == 2 * (MODEL_CALLS + EFFECTS)
    assert {one["model"] for one in deployment.model.asked} == {"theirs"}
    assert len(deployment.lines("pids")) == 1


def told(deployment: ProgramStack) -> list[list[str]]:
    """Return the pieces that the program was given of each of its streams, those of earlier lives too."""
    streams: list[list[str]] = []
    for line in deployment.lines("deltas"):
        if line == "--":
            streams.append([])
        else:
            streams[-1].append(line)
    return streams


def test_a_stream_is_given_while_it_is_written(deployment: ProgramStack) -> None:
    deployment.begin()
    seen: list[int] = []

    def between(place: int) -> None:
        if place == FIRST_TEXT:
            known = len(seen)
            eventually(lambda: [bool(one) for one in told(deployment)] == [True] * (known + 1), what="a delta")
            seen.append(place)

    deployment.model.between = between
    assert deployment.gateway.answer("plain", TASKS["streamed"]).startswith("all booked")
    assert len(seen) == len(deployment.model.asked) == MODEL_CALLS
    assert all(len(pieces) > 1 for pieces in told(deployment))
    assert len(deployment.lines("pids")) == 1


@pytest.mark.parametrize("dies", ["program", "host", "agent", "endpoint"])
@pytest.mark.timeout(300)
def test_a_death_in_the_middle_of_a_stream(deployment: ProgramStack, dies: str) -> None:
    """A later life is given the whole of what the first one was given the beginning of."""
    deployment.begin()
    died: list[str] = []

    def between(place: int) -> bool:
        if place != FIRST_TEXT or died:
            return False
        eventually(lambda: bool(told(deployment)[-1]), what="a delta")
        died.append(told(deployment)[-1][0])
        if dies == "program":
            deployment.kill_program()
        elif dies == "host":
            deployment.kill_host("plain")
        elif dies == "agent":
            deployment.stack.services["plain"].kill()
            deployment.stack.services["plain"].start(wait=False)
        return dies == "endpoint"

    deployment.model.between = between
    run = deployment.gateway.submit("plain", TASKS["streamed"])
    result = deployment.gateway.finished(run, within=120)
    assert result["state"] == "success", result["error"]
    assert died
    bought_twice = dies in ("agent", "endpoint")
    assert len(deployment.model.asked) == MODEL_CALLS + bought_twice
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"]
    assert deployment.answers(run) == MODEL_CALLS
    assert len(deployment.lines("pids")) == 2
    streams = ["".join(pieces) for pieces in told(deployment)]
    assert streams[-1] == result["output"]
    assert len(streams) == MODEL_CALLS + 1, "the first was begun twice, and the rest once"


@pytest.mark.parametrize(
    ("path", "word"), [("embeddings", "base_url"), ("messages", "OPENAI_BASE_URL"), ("completions", "chat")]
)
def test_other_apis_are_refused_with_what_to_do(deployment: ProgramStack, path: str, word: str) -> None:
    deployment.begin()
    result = deployment.gateway.finished(deployment.gateway.submit("odd", f"path {path}"))
    assert result["state"] == "success", result["error"]
    assert result["output"]["status"] == 404
    assert result["output"]["error"]["code"] == "not-served"
    assert word in result["output"]["error"]["message"]


@pytest.mark.parametrize(
    ("way", "who"),
    [("whole", "program"), ("streamed", "program"), ("whole", "host"), ("streamed", "both")],
)
@pytest.mark.timeout(900)
def test_one_run_that_is_killed_at_every_call(deployment: ProgramStack, way: str, who: str) -> None:
    """The process, or what runs it, dies before and behind each model call and each effect: nothing is done twice."""

    def kill() -> None:
        if who in ("program", "both"):
            deployment.kill_program()
        if who in ("host", "both"):
            deployment.kill_host("plain")

    deployment.begin()
    deployment.model.at = chain = Chain(kill)
    run = deployment.gateway.submit("plain", TASKS[way])
    result = deployment.gateway.finished(run, within=300)
    assert result["state"] == "success", result["error"]
    assert len(chain.killed) == 2 * (MODEL_CALLS + EFFECTS)
    assert len(deployment.model.asked) == MODEL_CALLS, "no model call is bought twice"
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"], "no effect happens twice"
    assert deployment.answers(run) == MODEL_CALLS
    assert len(set(deployment.lines("pids"))) > MODEL_CALLS, "it lived again and again"
    assert result["output"].startswith("all booked")


def test_concurrent_requests_are_matched_by_their_content(deployment: ProgramStack) -> None:
    """Killed half-answered, with other delays in each life: no answer is given to another request."""
    deployment.begin()
    chance = random.Random(7)
    deployment.model.delay = lambda body: chance.random() * 0.3
    deployment.model.at = chain = Chain(deployment.kill_program)
    answer = deployment.gateway.answer("plain", "parallel")
    deployment.model.delay = lambda body: 0.0
    assert len(chain.killed) == 2 * 4
    assert len(deployment.model.asked) == 4
    assert [one.partition(":")[0] for one in answer] == ["0", "1", "2", "3"]
    assert len({one.partition(": ")[2] for one in answer}) == 4


def test_both_apis_and_streams_of_a_client_made_at_import(deployment: ProgramStack) -> None:
    deployment.begin()
    answer = deployment.gateway.answer("odd", "responses book")
    first, second = answer.split("|")
    assert first.startswith("all booked")
    assert second.startswith("all booked")
    assert first != second
    assert len(deployment.model.asked) == 2
    assert len(deployment.lines("pids")) == 2


def test_the_model_is_patient_where_its_endpoint_is_busy(deployment: ProgramStack) -> None:
    deployment.begin()
    deployment.model.refusals = [503, 429, 503]
    run = deployment.gateway.submit("odd", "simple hello")
    assert deployment.gateway.succeeded(run).startswith("all booked")
    assert len(deployment.model.asked) == 4, "the run has waited, and the program has seen nothing of it"
    assert len(deployment.lines("pids")) == 1
    assert "model.deferred" in [name for name, _ in deployment.gateway.events(run)]


@pytest.mark.parametrize(
    ("program", "path", "asked", "effects"),
    [("random_request", "$.messages[0].content", 2, 0), ("random_call", "$.arguments.n", 0, 1)],
)
def test_what_is_not_asked_again_is_refused(
    deployment: ProgramStack, program: str, path: str, asked: int, effects: int
) -> None:
    deployment.begin()
    result = deployment.gateway.finished(deployment.gateway.submit("odd", f"{program} go"))
    assert (result["state"], result["error"]["code"]) == ("error", "non-deterministic")
    assert result["error"]["type"] == "NonDeterministic"
    assert path in result["error"]["message"]
    assert len(deployment.model.asked) == asked, "nothing more is asked"
    assert len(deployment.lines("effects")) == effects, "nothing more is done"


@pytest.mark.parametrize("program", ["seeded", "volatile"])
def test_chance_is_that_of_the_run_and_notes_to_the_endpoint_do_not_count(
    deployment: ProgramStack, program: str
) -> None:
    deployment.begin()
    assert deployment.gateway.answer("odd", f"{program} go").startswith("all booked")
    assert (len(deployment.model.asked), len(deployment.lines("pids"))) == (1, 2)


def test_an_error_of_the_program_ends_its_run(deployment: ProgramStack) -> None:
    deployment.begin()
    result = deployment.gateway.finished(deployment.gateway.submit("odd", "raising go"))
    assert result["error"]["code"] == "program-failed"
    assert "LookupError: no such trip" in result["error"]["message"]
    assert len(deployment.lines("pids")) == 1, "it would raise again"


def test_a_program_that_dies_again_and_again_is_given_up(deployment: ProgramStack) -> None:
    deployment.begin()
    result = deployment.gateway.finished(deployment.gateway.submit("odd", "dying go"))
    assert result["error"]["code"] == "program-failed"
    assert "signal 9" in result["error"]["message"]


def test_a_budget_ends_the_run_and_its_process(deployment: ProgramStack) -> None:
    deployment.begin()
    result = deployment.gateway.finished(deployment.gateway.submit("poor", "endless go"))
    assert (result["state"], result["error"]["code"]) == ("error", "budget")
    assert len(deployment.model.asked) == 3
    assert result["usage"]["input_tokens"] == 300


def test_a_budget_that_is_spent_within_a_pair_leaves_no_process(deployment: ProgramStack) -> None:
    deployment.begin()
    run = deployment.gateway.submit("poor", "pairs go")
    assert deployment.gateway.finished(run)["error"]["code"] == "budget"
    assert len(deployment.model.asked) == 3
    (pid,) = deployment.lines("pids")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="its process has ended")


def test_a_client_with_a_short_timeout_is_kept_waiting(deployment: ProgramStack) -> None:
    deployment.begin()
    deployment.model.delay = lambda body: 9.0
    answer = deployment.gateway.answer("odd", "impatient hello")
    deployment.model.delay = lambda body: 0.0
    assert [one.startswith("all booked") for one in answer.split("|")] == [True, True]
    assert len(deployment.model.asked) == 2


def test_a_function_without_a_file(deployment: ProgramStack) -> None:
    deployment.begin()
    assert deployment.gateway.answer("direct", "booking go").startswith("booked 1")


def test_a_cancelled_run_leaves_no_process(deployment: ProgramStack) -> None:
    deployment.begin()
    run = deployment.gateway.submit("odd", "waiting go")
    eventually(lambda: bool(deployment.lines("alive")), what="it works", state=deployment.stack.logs)
    deployment.gateway.request("POST", f"/v1/runs/{run}/cancel", json={}).raise_for_status()
    assert deployment.gateway.finished(run)["state"] == "cancelled"
    (pid,) = deployment.lines("pids")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="its process has ended")
    (url,) = deployment.lines("urls")
    body = {"model": "mine", "messages": [{"role": "user", "content": "late"}]}
    late = httpx2.post(f"{url}/chat/completions", json=body, timeout=patience())
    assert (late.status_code, late.json()["error"]["code"]) == (410, "life-over")


def test_a_request_of_a_dead_life_is_refused(deployment: ProgramStack) -> None:
    """Another process speaks in the name of a life that has died, before the next one begins and behind it."""
    deployment.begin()
    body = {"tool": "book", "arguments": {"n": 9}}

    def late() -> int:
        url = deployment.lines("urls")[0].removesuffix("/v1")
        return httpx2.post(f"{url}/call", json=body, timeout=patience()).status_code

    def at(label: str) -> None:
        if label == "book1.called":
            deployment.kill_program()
            (pid,) = deployment.lines("pids")
            eventually(lambda: not Path(f"/proc/{pid}").exists(), what="it is dead")
            assert late() == 410

    deployment.model.at = at
    assert deployment.gateway.answer("odd", "booking go").startswith("booked 1")
    assert len(deployment.lines("urls")) == 2
    assert late() == 410
    assert deployment.lines("effects") == ["1"]


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_an_approval_outlasts_the_process_that_waits_for_it(deployment: ProgramStack, verdict: str) -> None:
    deployment.begin()
    run = deployment.gateway.submit("held", "booking go")
    held = deployment.gateway.wait_for(run, "approval.requested")["event"]
    await_program(deployment)
    (pid,) = deployment.lines("pids")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="only the journal is left of it")
    assert deployment.lines("effects") == []
    path = f"/v1/approvals/{held['call']}"
    deployment.gateway.request("POST", path, json={"verdict": verdict, "feedback": "Why?"}).raise_for_status()
    result = deployment.gateway.finished(run)
    assert len(deployment.lines("pids")) == 2
    if verdict == "approved":
        assert (result["state"], deployment.lines("effects")) == ("success", ["1"])
    else:
        assert (result["error"]["code"], deployment.lines("effects")) == ("program-failed", [])
        assert "Why?" in result["error"]["message"]


def test_tools_by_mcp_and_arguments_and_what_a_program_may_not(deployment: ProgramStack) -> None:
    deployment.begin()
    names, failed, text = deployment.gateway.answer("odd", "by_mcp go")
    assert (names, failed) == (["book"], False)
    assert text.startswith("booked 1")
    given: Any = deployment.gateway.answer("odd", "arguments go", inputs={"case": 7})
    assert given == {"task": "go", "arguments": {"case": 7}}
    assert deployment.gateway.answer("odd", "secrets go") == [], "no key of the endpoint"
    assert "native_tools" in deployment.gateway.answer("odd", "hosted go")


def test_an_environment_without_cadre(deployment: ProgramStack) -> None:
    deployment.begin()
    answer = deployment.gateway.answer("bare", "hello")
    assert answer["said"].startswith("all booked")
    assert answer["booked"].startswith("booked 1")
    assert answer["found"] == []
    assert os.path.realpath(answer["prefix"]).endswith("bare")


def test_people_see_it_as_any_run_and_fork_it(deployment: ProgramStack, tmp_path: Path) -> None:
    deployment.begin()
    gateway, cadre = deployment.gateway, commands_of(deployment.stack, tmp_path)
    run = gateway.submit("plain", TASKS["whole"])
    names = [name for name, _ in gateway.events(run)]
    assert gateway.succeeded(run).startswith("all booked")
    assert (names.count("model.called"), names.count("tool.called")) == (MODEL_CALLS, EFFECTS)
    shown = cadre("show", run, "--full")
    assert shown.returncode == 0
    assert "booked 4 as" in shown.stdout
    assert gateway.request("GET", f"/v1/runs/{run}/replay").json()["divergences"] == []
    assert cadre("verify", run).returncode == 0
    deployment.begin()
    forked = gateway.request("POST", f"/v1/runs/{run}/fork", json={"at": 3})
    assert forked.status_code == 202, forked.text
    assert gateway.succeeded(forked.json()["id"]).startswith("all booked")
    assert len(deployment.model.asked) == MODEL_CALLS - 2
    assert sorted(deployment.lines("effects")) == ["3", "4"], "its first steps are those of the other run"


def test_what_its_model_writes_is_heard_and_messages_are_refused(deployment: ProgramStack) -> None:
    deployment.begin()
    let_go = threading.Event()

    def at(label: str) -> None:
        if label == "model2.asked":
            assert let_go.wait(patience())

    deployment.model.at = at
    run = deployment.gateway.submit("plain", TASKS["whole"])
    heard = []
    for name, data in deployment.gateway.events(run):
        heard.append((name, data))
        if name == "model.called" and data["event"]["step"] == 2:
            answer = deployment.gateway.request("POST", f"/v1/runs/{run}/messages", json={"text": "Stop."})
            assert (answer.status_code, answer.json()["code"]) == (409, "reads-no-messages")
            let_go.set()
    assert [data["text"] for name, data in heard if name == "delta"]
    assert deployment.gateway.succeeded(run).startswith("all booked")
    assert len(deployment.model.asked) == MODEL_CALLS


def test_a_manager_has_a_program_do_a_task_and_a_program_asks_a_member(deployment: ProgramStack) -> None:
    """Both are programs: one calls the other as a member, which books."""
    deployment.begin()
    run = deployment.gateway.submit("chief", "delegating go")
    result = deployment.gateway.finished(run)
    assert result["state"] == "success", result["error"]
    assert "booked 1 as" in result["output"]
    (child,) = result["children"]
    assert child["agent"] == "odd"
    assert deployment.lines("effects") == ["1"]
