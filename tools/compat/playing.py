"""Plays all cases in both systems, before one scripted model and a recorder that hears what it is asked."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.cadre_values import PYTHON, tagged
from compat.case import CADRE, SMOLAGENTS, Case
from compat.cases import PLAYED, script
from compat.conversations import Conversations, conversations
from harness.patience import patience
from harness.stack import Gateway, Stack

FOLDER = Path(__file__).parent
TEAM = FOLDER / "team"
LIBRARIES = "numpy,pandas,PIL.Image"

Result = dict[str, Any]
"""`{state, output, error, tokens, steps}`"""


@dataclass(frozen=True)
class Played:
    conversations: Conversations
    results: dict[tuple[str, str], Result]
    """By system and name of the case."""


def play(folder: Path) -> Played:
    assert PYTHON.exists(), "smolagents is not installed: run `make compat`"
    with Stack(folder) as stack:
        recorder = _recorder(stack, folder)
        results = {**_by_smolagents(f"{recorder}/v1"), **_by_cadre(stack)}
        return Played(conversations(recorder, folder / "cassettes"), results)


def _recorder(stack: Stack, folder: Path) -> str:
    """Starts the scripted model and the recorder before it, which all agents ask; returns its address."""
    file = folder / "script.yaml"
    file.write_text(json.dumps(script()))
    player = stack.model(file)
    recorder = stack.add(
        "recorder",
        "cadre_scripted_model",
        *("--mode", "record", "--upstream", f"{player.url}/v1", "--cassette", folder / "cassettes"),
        start=False,
    )
    recorder._arguments += ["--port", str(recorder.port)]
    recorder.start()
    stack.environment["CADRE_MODEL_URL"] = f"{recorder.url}/v1"
    stack.environment["CADRE_MODEL"] = CADRE
    return recorder.url


def _by_smolagents(url: str) -> dict[tuple[str, str], Result]:
    tasks = json.dumps(
        [
            {
                "agent": case.agent,
                "task": case.task,
                "then": case.then,
                "interrupts": case.interrupts,
                **case.fields,
            }
            for case in PLAYED
        ]
    )
    command = [str(PYTHON), "-W", "ignore", str(FOLDER / "smolagents_runner.py"), url, str(TEAM)]
    done = subprocess.run(command, input=tasks, capture_output=True, text=True, timeout=patience(300), check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return {(SMOLAGENTS, case.name): result for case, result in zip(PLAYED, results, strict=True)}


def _by_cadre(stack: Stack) -> dict[tuple[str, str], Result]:
    for file in sorted(TEAM.glob("*.yaml")):
        stack.agent(file, start=False)
    stack.tools(TEAM / "tools.py", start=False)
    libraries = {"CADRE_SANDBOX_PYTHON": str(PYTHON), "CADRE_SANDBOX_MODULES": LIBRARIES}
    stack.add("sandbox", "cadre_sandbox", start=False, **libraries)
    gateway = stack.open_gateway()
    runs = {case.name: gateway.submit(case.agent, case.task, session=case.name, **case.fields) for case in PLAYED}
    return {(CADRE, case.name): _end(gateway, case, runs[case.name]) for case in PLAYED}


def _end(gateway: Gateway, case: Case, run: str) -> Result:
    if case.interrupts:
        gateway.wait_for(run, "tool.called", tool="hold")
        assert gateway.request("POST", f"/v1/runs/{run}/cancel").is_success
    result = gateway.finished(run)
    # smolagents counts all that is in memory, Cadre each run on its own.
    tokens = result["own_usage"]["output_tokens"]
    if case.then:
        result = gateway.finished(gateway.submit(case.agent, case.then, session=case.name))
        tokens += result["own_usage"]["output_tokens"]

    def fetch(ref: str) -> bytes:
        return gateway.request("GET", f"/v1/blobs/{ref.removeprefix('blob:')}").content

    return {
        **result,
        "output": tagged(result["output"], fetch),
        "tokens": tokens,
        "steps": [_step(step) for step in result["memory"] if step["type"] in ("planning", "action")],
    }


def _step(step: dict[str, Any]) -> list[Any]:
    """A step as smolagents' callbacks learn of it; there an error of a call is the step's."""
    if step["type"] == "planning":
        return ["plan"]
    errors = [one["error"] for one in (step, *step.get("calls", ())) if one.get("error")]
    return [step["number"], errors[0]["type"] if errors else ""]
