"""`cadre up` as people use it: piped, interrupted, restarted, and with services of their own next to it."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.folder_commands import FolderCommands, stop
from harness.guard import Guard
from harness.patience import eventually, patience

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: helper}
spec: {description: Helps.}
"""
SCRIPTED = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: small}
spec: {agents: [other.yaml], script: script.yaml}
"""
SCRIPT = """
rules:
  - name: all
    match: {}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: As the script says.}}]
"""


CALLING = """
rules:
  - name: calls
    match: {}
    reply:
      tool_calls: [{name: nap, arguments: {}}]
"""


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture
def commands(tmp_path: Path, guard: Guard) -> FolderCommands:
    return FolderCommands(tmp_path, guard)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_though_nobody_reads_its_output_any_more(commands: FolderCommands, number: int) -> None:
    """As after Ctrl-C on `cadre up 2>&1 | tee log`, which ends tee first."""
    process = commands.start("up", "--port", "0", piped=True)
    assert process.stdout is not None
    while b"nats  " not in (line := process.stdout.readline()):
        assert line, "it ended"
    state = commands.state()
    assert state is not None
    pids = state["pids"]
    assert isinstance(pids, dict)
    process.stdout.close()
    process.send_signal(number)
    assert process.wait(patience()) == 0
    assert commands.state() is None
    assert [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()] == []


def test_a_second_signal_ends_all_at_once(commands: FolderCommands) -> None:
    commands.environment["CADRE_DRAIN_SECONDS"] = "600"
    process = commands.up()
    state = commands.state()
    assert state is not None
    pids = state["pids"]
    assert isinstance(pids, dict)
    os.kill(pids["gateway"], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping" in commands.log("up"), what="it is stopping")
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience()) == 130
    assert [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()] == []


def test_services_find_it_whenever_it_is_started(commands: FolderCommands, tmp_path: Path) -> None:
    """An agent that is there before `cadre up`, and lives through its restart, is found by the next one; so is the
    scripted model by the agent."""
    for name, text in {
        "other.yaml": AGENT.replace("helper", "other"),
        "helper.yaml": AGENT,
        "team.yaml": SCRIPTED,
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    agent = commands.start("agent", "helper.yaml")
    eventually(
        lambda: "still trying" in commands.log("agent"),
        what="the agent waits",
        state=lambda: commands.log("agent"),
    )
    first = commands.up()
    assert answer(commands) == "As the script says.\n"
    before = commands.state()
    assert stop(first) == 0
    second = commands.up()
    after = commands.state()
    assert before is not None
    assert after is not None
    assert (after["nats"], after["model"]) == (before["nats"], before["model"])
    assert answer(commands) == "As the script says.\n"
    assert stop(second) == 0
    # The next one is elsewhere.
    (tmp_path / ".cadre/ports.json").unlink()
    third = commands.up()
    assert answer(commands) == "As the script says.\n"
    agent.terminate()
    assert agent.wait(patience()) == 0
    assert stop(third) == 0


TOOL = """
import time

from cadre import tool


@tool(read_only=True)
def nap() -> str:
    \"\"\"Sleeps.\"\"\"
    time.sleep(600)
    return "slept"
"""


def test_a_run_says_what_it_waits_for_and_nobody_offers(commands: FolderCommands, tmp_path: Path) -> None:
    """The only executor of its tool has died in the middle of the call, then the agent itself."""
    (tmp_path / "helper.yaml").write_text(AGENT.replace("Helps.", "Helps., tools: [nap]"))
    (tmp_path / "nap.py").write_text(TOOL)
    (tmp_path / "script.yaml").write_text(CALLING)
    (tmp_path / "other.yaml").write_text(AGENT.replace("helper", "other"))
    (tmp_path / "team.yaml").write_text(SCRIPTED)
    up = commands.up()
    tools, agent = commands.start("tools", "nap.py"), commands.start("agent", "helper.yaml")
    eventually(lambda: "helper" in live(commands) and "nap" in live(commands), what="both are live")
    run = commands.run("run", "helper", "rest", "--detach").stdout.strip()

    def waiting_for() -> str:
        found = json.loads(commands.run("show", run, "-o", "json").stdout)
        return f"{found['state']}: {found['waiting_for']}"

    eventually(lambda: waiting_for() == "running: None", what="the run is there", state=waiting_for)
    tools.kill()
    tools.wait()
    following = commands.start("show", run, "--follow")
    eventually(lambda: waiting_for() == "running: tool nap", what="the tool is missed", state=waiting_for)
    note = f"cadre: run {run} waits for tool nap"
    eventually(lambda: note in commands.log("show"), what="the follower is told", state=lambda: commands.log("show"))
    agent.kill()
    agent.wait()
    eventually(lambda: waiting_for() == "running: agent helper", what="the agent is missed", state=waiting_for)
    following.kill()
    following.wait()
    assert commands.log("show").count("waits for tool nap") == 1
    assert stop(up) == 0


def live(commands: FolderCommands) -> str:
    """Return what `cadre ps` lists, as JSON."""
    return commands.run("ps", "-o", "json").stdout


def answer(commands: FolderCommands) -> str:
    """The helper's answer, once it is live."""

    def is_live() -> bool:
        return '"helper"' in commands.run("ps", "-o", "json").stdout

    eventually(is_live, what="helper is live", state=lambda: commands.log("agent"))
    done = commands.run("run", "helper", "hello")
    assert done.returncode == 0, done.stderr + commands.log("agent")
    return done.stdout
