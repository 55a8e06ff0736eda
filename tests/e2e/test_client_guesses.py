"""A client of a gateway as people write it who have read no page, against what `cadre up app.py` serves.

Each test is such a guess. It works as it stands, or is refused with the word that helps. The guesses about agents,
tools and tests in one process are in `tests/unit/test_guesses.py`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from cadre import Client
from cadre.client import Conflict
from cadre.testing import running_model
from harness.folder_commands import FolderCommands, stop
from harness.guard import Guard
from harness.patience import eventually, patience

APP = '''
"""The module that `cadre up` serves."""

from cadre import Agent, Schedule


def publish(text: str) -> str:
    """Publish a text.

    Args:
        text: The text.
    """
    return f"published {text}"


writer = Agent("writer", instructions="Write.")
editor = Agent("editor", instructions="Publish.", tools=[publish], permission="restricted")
boss = Agent("boss", instructions="Lead.", team=[writer])
yearly = Schedule("yearly", agent=boss, task="Sum up.", cron="0 0 1 1 *")
'''

SCRIPT = """
rules:
  - name: publishes
    match: {user: publish it, turn: 0}
    reply: {tool_calls: [{name: publish, arguments: {text: draft}}]}
  - name: waits
    match: {user: take long}
    reply: {delay: 60, tool_calls: [{name: final_answer, arguments: {answer: late}}]}
  - name: greets
    match: {user: say hello}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: hello}}]}
"""


@dataclass
class Served:
    """The agents and tools that `cadre up app.py` serves."""

    commands: FolderCommands
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, guard = tmp_path_factory.mktemp("app"), Guard()
    (folder / "app.py").write_text(APP)
    (folder / "script.yaml").write_text(SCRIPT)
    with running_model("--script", folder / "script.yaml") as model:
        commands = FolderCommands(folder, guard)
        commands.environment |= {"CADRE_MODEL_URL": model.url, "CADRE_MODEL": "m", "CADRE_MODEL_KEY": "k"}
        up = commands.up("app.py", "--reload")
        state = commands.state()
        assert state is not None
        yield Served(commands, str(state["gateway"]))
        stop(up)
    guard.close()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url, api_key="unused") as client:
        yield client


def test_a_module_is_served_as_services(client: Client) -> None:
    assert {agent.name for agent in client.agents()} == {"writer", "editor", "boss"}
    assert [tool.name for tool in client.tools()] == ["publish"]
    assert [schedule.name for schedule in client.schedules()] == ["yearly"]


def test_a_run_is_started_and_waited_for(client: Client) -> None:
    run = client.start("writer", "say hello")
    done = run.wait(timeout=timedelta(seconds=patience()))
    assert (run.state, done.output, done.usage.total_tokens > 0) == ("success", "hello", True)
    assert client.get_run(run.id).usage.cost == 0.0
    assert client.run("writer", "say hello") == "hello"


def test_the_type_of_one_answer_goes_with_the_request(client: Client) -> None:
    run = client.start("writer", "Count.", output_type=list[int])
    assert all(isinstance(one, int) for one in run.result(timeout=patience()))
    started = next(event for event in run.stream() if event.type == "run.accepted")
    assert started.data["event"]["task"]["terms"]["output_schema"]["items"] == {"type": "integer"}


def test_a_person_approves(client: Client) -> None:
    run = client.start("editor", "publish it")
    eventually(lambda: bool(client.approvals(run=run.id)), what="the call waits")
    (held,) = client.approvals(run=run.id)
    with pytest.raises(TypeError, match="'feedback'"):
        client.approve(held.call, comment="fine")  # type: ignore[call-arg]
    decided = client.approve(held.call, feedback="fine")
    assert (decided.verdict, decided.feedback) == ("approved", "fine")
    assert "published draft" in run.result(timeout=patience())
    with pytest.raises(Conflict):
        client.reject(held.call)


def test_a_timeout_leaves_the_run_and_cancel_ends_it(client: Client, served: Served) -> None:
    run = client.start("writer", "take long")
    with pytest.raises(TimeoutError):
        run.result(timeout=0.3)
    assert run.detail().state == "running"
    followed = served.commands.run("run", "writer", "take long", "--timeout", "1s", "-o", "json")
    assert followed.returncode == 124
    (newest, *_) = client.runs(limit=1)
    assert newest.state == "running"
    for one in (run, client.attach(newest.id)):
        one.cancel()
        assert one.wait(timeout=patience()).state == "cancelled"


def test_one_key_starts_one_run(client: Client) -> None:
    runs = {client.start("writer", "say hello", idempotency_key="k").id for _ in range(2)}
    assert len(runs) == 1


def test_a_change_of_the_module_is_taken_up(served: Served, client: Client) -> None:
    module = served.commands.folder / "app.py"
    module.write_text(APP + '\nextra = Agent("extra", instructions="Help.")\n')
    eventually(lambda: "extra" in {agent.name for agent in client.agents()}, what="extra is there")
    module.write_text(APP + "\nthis is no Python\n")
    eventually(lambda: "reload: " in served.commands.log("up").splitlines()[-1], what="it says so")
    assert "extra" in {agent.name for agent in client.agents()}


def test_an_agent_asks_its_endpoint_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    program = APP + "\nrun = writer.run_sync('say hello')\nprint(run.output, run.usage.model_calls)\n"
    with running_model("--script", tmp_path / "script.yaml") as model:
        environment = {"CADRE_MODEL_URL": model.url, "CADRE_MODEL": "m", "CADRE_MODEL_KEY": "k"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello 1\n", "")


def test_a_module_without_agents_is_refused(tmp_path: Path) -> None:
    guard = Guard()
    commands = FolderCommands(tmp_path, guard)
    (tmp_path / "app.py").write_text("from cadre import Agent\na = Agent('a', permission='ask')\n")
    refused = commands.run("up", "app.py", "--port", "0")
    assert refused.returncode == 2
    assert "permission" in refused.stderr
    (tmp_path / "app.py").write_text("x = 1\n")
    checked = commands.run("check", "app.py")
    assert checked.returncode == 1
    assert "Agent(" in checked.stdout
    guard.close()
