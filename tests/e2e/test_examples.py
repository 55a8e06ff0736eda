"""The examples as their README has them: a tool service, one agent as script and as YAML file, a step callback."""

import ast
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters import local_stack
from cadre.client import NotFound, follow, new_runs
from cadre.spec.agent_file import read_agent
from harness.command import Commands, commands_of
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENT = EXAMPLES / "own_agent"

SCRIPT = """
rules:
  - match: {system: Let the tool count, has_tool: false}
    reply:
      tool_calls: [{name: count_words, arguments: {text: "{{ find(user, '«(.*)»') }}"}}]
  - match: {has_tool: true}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: "It has {{ tool }} words."}}]
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "script.yaml").write_text(SCRIPT)
    with Stack(folder) as stack:
        stack.model(folder / "script.yaml")
        stack.tools(EXAMPLES / "word_counter" / "tools.py", start=False)
        stack.script(AGENT / "agent.py", start=False)
        stack.agent(AGENT / "agent.yaml", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture
def cadre(stack: Stack, tmp_path: Path) -> Commands:
    return commands_of(stack, tmp_path)


def replicas(stack: Stack) -> int:
    [agent] = Gateway(stack.services["gateway"]).request("GET", "/v1/agents").json()["agents"]
    assert agent["name"] == "writer"
    return len(agent["replicas"])


def run_script(stack: Stack, folder: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A script of a user's, to its end."""
    return subprocess.run(
        [sys.executable, *map(str, argv)],
        env={**stack.environment, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )


def test_script_and_file_are_one_agent(stack: Stack) -> None:
    eventually(lambda: replicas(stack) == 2, what="two replicas")
    sys.path.insert(0, str(AGENT))
    try:
        from agent import writer  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(AGENT))
    assert writer.spec == read_agent(AGENT / "agent.yaml")


@pytest.mark.parametrize("left", ["agent-script", "agent"])
def test_each_of_them_does_the_work_alone(stack: Stack, cadre: Commands, left: str) -> None:
    other = next(name for name in ("agent-script", "agent") if name != left)
    assert stack.services[other].terminate() == 0
    done = cadre("run", "writer", "How many words has «to be or not to be»?", "--timeout", 30)
    assert (done.returncode, done.stdout) == (0, "It has 6 words.\n"), done.stderr
    stack.services[other].start()


def test_a_step_callback_tells_of_each_step(stack: Stack, cadre: Commands, tmp_path: Path) -> None:
    run = cadre("run", "writer", "How many words has «to be or not to be»?", "--detach").stdout.strip()
    for _ in range(2):  # who comes again reads the same
        gateway = stack.services["gateway"].url
        done = run_script(stack, tmp_path, EXAMPLES / "step_callback" / "steps.py", run, CADRE_GATEWAY_URL=gateway)
        assert (done.returncode, done.stdout) == (0, "writer step 1: done\nwriter step 2: done\n"), done.stderr


async def test_following_from_a_program(stack: Stack, cadre: Commands) -> None:
    url = stack.services["gateway"].url
    with pytest.raises(NotFound, match="f00"):
        [event async for event in follow("f00", gateway=url)]
    begun = new_runs("writer", gateway=url, every=0.05)
    coming = asyncio.ensure_future(anext(begun))
    done = await asyncio.to_thread(cadre, "run", "writer", "How many words has «to be»?", "-o", "json")
    run = json.loads(done.stdout)["id"]
    async with asyncio.timeout(patience()):
        assert await coming == run
    await begun.aclose()
    events = [event async for event in follow(run, gateway=url)]
    assert [event.type for event in events if event.type.startswith("step.")] == ["step.finished"] * 2
    assert events[-1] == ("end", {"run": run, "state": "success"})
    first = next(event for event in events if event.type == "step.finished")
    rest = [event async for event in follow(run, gateway=url, after=first.data["seq"])]
    assert rest == [event for event in events if event.data.get("seq", first.data["seq"] + 1) > first.data["seq"]]


def test_a_web_endpoint_streams_a_run(stack: Stack) -> None:
    environment = {"CADRE_GATEWAY_URL": stack.services["gateway"].url}
    command = ("uvicorn", "--app-dir", EXAMPLES / "web_endpoint", "app:app")
    service = stack.add("endpoint", *command, start=False, **environment)
    service._arguments += ["--port", str(service.port)]
    service.start(wait=False)

    def asked() -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{service.url}/ask/f00").status_code == 404
        return False

    eventually(asked, what="the endpoint answers", state=stack.logs)
    question = {"text": "How many words has «to be or not to be»?"}
    run = httpx2.post(f"{service.url}/ask", json=question).json()["run"]
    for _ in range(2):
        stream = httpx2.get(f"{service.url}/ask/{run}", timeout=60)
        assert stream.headers["content-type"].startswith("text/event-stream")
        said = [json.loads(line.removeprefix("data: ")) for line in stream.text.split("\n\n") if line]
        assert said == [{"tool": "count_words"}, {"answer": "It has 6 words."}]
    service.terminate()


async def test_a_notebook_runs(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_URL", stack.services["gateway"].url)
    notebook = json.loads((EXAMPLES / "notebook" / "ask.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        assert {"id", "cell_type", "metadata", "source"} <= cell.keys()
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as a notebook's kernel does
            code = compile("".join(cell["source"]), cell["id"], "exec", flags)
            running = eval(code, names)
            if running is not None:
                await running
    assert names["answer"] == "It has 6 words."
    assert capsys.readouterr().out == (
        "writer has finished step 1\nwriter has finished step 2\nIt has 2 words. 2 steps\n"
    )


def test_a_script_finds_the_cadre_up_of_its_folder(stack: Stack, tmp_path: Path) -> None:
    data = tmp_path / ".cadre"
    with local_stack.locked(data):
        local_stack.write_state(data, local_stack.StackState(gateway="", nats=stack.nats.url, pids={}))
        script = subprocess.Popen(
            [sys.executable, str(AGENT / "agent.py")],
            env={key: value for key, value in stack.environment.items() if key != "CADRE_NATS_URL"},
            cwd=tmp_path,
        )
        try:
            eventually(lambda: replicas(stack) == 3, what="a third replica")
        finally:
            script.terminate()
            assert script.wait(patience()) == 0


def test_a_script_that_cannot_serve_ends_as_the_command_does(stack: Stack, tmp_path: Path) -> None:
    for variables, said in (
        ({"CADRE_PORT": str(stack.services["gateway"].port)}, "agent writer cannot start: cannot listen on"),
        ({"CADRE_SHARDS": "abc"}, "CADRE_SHARDS='abc': must be a whole number"),
    ):
        done = run_script(stack, tmp_path, AGENT / "agent.py", **variables)
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.startswith(f"cadre: {said}")
