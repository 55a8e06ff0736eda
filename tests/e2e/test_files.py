"""Files over all services: written by one agent, read by another, downloaded by a person; images that a model sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.command import Commands, only_line
from harness.patience import eventually
from harness.people import events_of
from harness.stack import Gateway, Stack
from harness.texts import holds

HERE = Path(__file__).parent
TEAM = HERE / "keeping"


@pytest.fixture(scope="module")
def more(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    stack.add("sandbox", "cadre_sandbox", start=False)
    died = tmp_path_factory.mktemp("died") / "once"
    stack.add("files", HERE / "dying_writer.py", "cadre_standard_tools.files", DIED=str(died), start=False)


@pytest.fixture(scope="module")
def outlived(stack: Stack, gateway: Gateway) -> str:
    """A run whose executor has killed itself behind a write: only the first one does."""
    run = gateway.submit("writer", "write: All is well.")
    executor = stack.services["files"]
    eventually(lambda: not executor.is_running, what="the executor has killed itself")
    # It was written, no matter who knows of it.
    there = gateway.request("GET", f"/v1/runs/{run}/files").json()["files"]
    assert [(file["path"], file["version"]) for file in there] == [("out/report.md", 1)]
    executor.start()
    return run


def test_a_file_outlives_the_executor_that_wrote_it(gateway: Gateway, cadre: Commands, outlived: str) -> None:
    run = outlived
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert result["output"].endswith("All is well.")
    [written] = [e for e in events_of(gateway, run, "tool.answered") if e["tool"] == "write_file"]
    assert written["output"] == {"path": "out/report.md", "size": 12, "version": 1}, "written once"
    listed = cadre("files", run)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.split() == [
        *("VERSION", "SIZE", "TYPE", "BY", "PATH"),
        *("1", "12", "B", "text/markdown", "write_file", "out/report.md"),
    ]
    done = cadre("files", run, "out/report.md", "-o", "here.md")
    assert done.returncode == 0, done.stderr
    assert (cadre.folder / "here.md").read_text() == "All is well."
    assert cadre("files", run, "out/report.md").stdout == "All is well."
    # No one is left who would read another one.
    assert "has ended as success" in only_line(cadre("files", run, "--put", "here.md"), 1)
    assert holds(only_line(cadre("files", run, "none", "-o", "x"), 4), "'none'", "out/report.md")
    assert not (cadre.folder / "x").exists()


def test_who_goes_on_from_a_run_finds_its_files(gateway: Gateway, cadre: Commands, outlived: str) -> None:
    gateway.finished(outlived)

    def talk(task: str, **fields: Any) -> tuple[str, str]:
        run = gateway.submit("writer", task, session="report", **fields)
        result = gateway.finished(run)
        assert result["state"] == "success", result
        return run, result["output"]

    first, _ = talk("write: First of all.")
    second, output = talk("Open the report that you wrote.")
    assert output.endswith("First of all.")
    reset, output = talk("Open the report that you wrote.", reset=True)
    assert "First of all." not in output
    files = gateway.request("GET", f"/v1/runs/{reset}/files").json()["files"]
    assert files == [], "a session that is reset begins with nothing"
    done = cadre("fork", first, "--at", 2, "-o", "json")
    assert done.returncode == 0, done.stderr
    forked = json.loads(done.stdout)
    assert forked["output"].endswith("First of all.")
    # What the fork replays has written it; the fork itself only had it read.
    assert [event["tool"] for event in events_of(gateway, forked["id"], "tool.called")] == ["read_file"]
    assert cadre("runs", "rm", first).returncode == 0
    for run in (second, forked["id"]):
        assert cadre("files", run, "out/report.md").stdout == "First of all."
    begins = cadre("fork", second, "--at", 1, "--task", "Open the report.")
    assert (begins.returncode, "First of all." in begins.stdout) == (0, True), begins.stderr


def test_a_run_reads_the_file_that_it_was_given(cadre: Commands) -> None:
    (cadre.folder / "given.txt").write_text("given by a person")
    done = cadre("run", "reader", "read: given.txt", "--file", "given.txt")
    assert (done.returncode, done.stdout) == (0, "given by a person\n"), done.stderr


def test_a_missing_file_is_an_observation_that_names_the_others(cadre: Commands) -> None:
    (cadre.folder / "other.txt").write_text("x")
    done = cadre("run", "reader", "read: none.txt", "--file", "other.txt")
    assert done.returncode == 0, done.stderr
    assert holds(done.stdout, "'none.txt'", "other.txt")


def test_a_model_sees_the_latest_images_of_its_tools(stack: Stack, gateway: Gateway, cadre: Commands) -> None:
    before = len(stack.model_requests())
    run = gateway.submit("looker", "Look at the screens.")
    result = gateway.finished(run)
    assert result["output"] == "seen"
    asked = [line for line in stack.model_requests()[before:] if line["rule"].startswith(("look", "have looked"))]
    assert [line["images"] for line in asked] == [0, 1, 2, 2]
    shots = [event["output"]["image"]["$file"] for event in events_of(gateway, run, "tool.answered")]
    assert [shot["name"] for shot in shots] == ["screen-10.png", "screen-20.png", "screen-30.png"]
    images = [step["images"] for step in result["memory"] if step.get("images")]
    assert images == [[shot["ref"]] for shot in shots]
    got = cadre("files", shots[0]["ref"], "-o", "screen.png")
    assert got.returncode == 0, got.stderr
    assert (cadre.folder / "screen.png").read_bytes().startswith(b"\x89PNG")


def test_code_runs_as_a_tool_call(gateway: Gateway) -> None:
    assert (
        gateway.answer("computer", "run: import math; print('so'); math.factorial(5)") == "Stdout:\nso\n\nOutput: 120"
    )
    run = gateway.submit("computer", "run: import os")
    [answered] = events_of(gateway, run, "tool.answered")
    assert answered["error"]["type"] == "AgentToolExecutionError"
    assert "os" in answered["error"]["message"]


def test_a_long_output_is_read_on(gateway: Gateway) -> None:
    text = "''.join(f'{n:04}' for n in range(2000))"
    run = gateway.submit("computer", f"run: print({text})")
    output = gateway.finished(run)["output"]
    first = next(e for e in events_of(gateway, run, "tool.answered") if e["tool"] == "python_interpreter")
    assert len(json.dumps(first["output"])) < 1100
    # "Stdout:\n" is eight characters long.
    assert output.startswith("09980999100010011002"), output
    assert "characters follow: read on at 4020.]" in output
