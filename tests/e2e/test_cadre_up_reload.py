"""`cadre up --reload`: what changes is restarted, with runs in flight; what is wrong is reported and costs nothing."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.command import CADRE, only_line
from harness.folder_commands import FolderCommands, stop
from harness.guard import Guard
from harness.patience import eventually, patience
from harness.texts import holds

TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {{name: small}}
spec: {{agents: [{agents}], tools: [tools.py], script: script.yaml}}
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec: {{description: {about}, tools: [nap]}}
"""
TOOLS = """
from pathlib import Path
import time
from cadre.tool import tool
from words import WORD

@tool
def nap() -> str:
    "Sleeps until it is woken."
    Path("asleep").touch()
    while not Path("woken").exists():
        time.sleep(0.05)
    return WORD
"""
SCRIPT = """
rules:
  - name: naps
    match: {{user: nap, turn: 0}}
    reply: {{tool_calls: [{{name: nap, arguments: {{}}}}]}}
  - name: woken
    match: {{user: nap, turn: 1}}
    reply: {{tool_calls: [{{name: final_answer, arguments: {{answer: "{{{{ results.nap[0] }}}}"}}}}]}}
  - name: all
    match: {{}}
    reply: {{tool_calls: [{{name: final_answer, arguments: {{answer: {answer}}}}}]}}
"""


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[FolderCommands]:
    guard = Guard()
    write(tmp_path, "words.py", 'WORD = "before"\n')
    write(tmp_path, "tools.py", TOOLS)
    write(tmp_path, "script.yaml", SCRIPT.format(answer="first"))
    write(tmp_path, "helper.yaml", AGENT.format(name="helper", about="Helps."))
    write(tmp_path, "team.yaml", TEAM.format(agents="helper.yaml"))
    yield FolderCommands(tmp_path, guard)
    guard.close()


def write(folder: Path, name: str, text: str) -> None:
    """As many editors do: a new file is moved into the old one's place."""
    (folder / f"{name}.new").write_text(text)
    (folder / f"{name}.new").replace(folder / name)


def pids(commands: FolderCommands) -> dict[str, int]:
    state = commands.state()
    assert state is not None
    found = state["pids"]
    assert isinstance(found, dict)
    return found


def until(commands: FolderCommands, what: str, times: int = 1) -> None:
    eventually(lambda: commands.log("up").count(what) >= times, what=repr(what), state=lambda: commands.log("up"))


def restarted(commands: FolderCommands, change: Callable[[], None], said: str) -> set[str]:
    """The services whose processes are others when that was said."""
    before, times = pids(commands), commands.log("up").count(said)
    change()
    until(commands, said, times + 1)
    after = pids(commands)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_what_changes_is_restarted_and_nothing_else(commands: FolderCommands) -> None:
    folder = commands.folder
    up = commands.up("--reload")

    # An agent's file, while a run of it waits for a tool.
    run = subprocess.Popen(
        [*CADRE, "run", "helper", "nap"], cwd=folder, env=commands.environment, stdout=subprocess.PIPE
    )
    eventually((folder / "asleep").exists, what="the tool sleeps")
    text = AGENT.format(name="helper", about="Helps otherwise.")
    changed = restarted(commands, lambda: write(folder, "helper.yaml", text), "reload: restarted")
    assert changed == {"helper"}
    assert "Helps otherwise." in commands.run("ps").stdout
    (folder / "woken").touch()
    assert run.communicate(timeout=patience())[0] == b"before\n"

    # A module that a tools module imports.
    changed = restarted(commands, lambda: write(folder, "words.py", 'WORD = "after"\n'), "reload: restarted")
    assert changed == {"tools"}
    assert commands.run("run", "helper", "nap").stdout == "after\n"

    # The script of the scripted model, which stays where it is.
    write(folder, "script.yaml", SCRIPT.format(answer="second"))
    until(commands, "reload: restarted", 3)
    eventually(lambda: commands.run("run", "helper", "x").stdout == "second\n", what="it plays the new script")

    # An agent comes, and goes.
    def come() -> None:
        write(folder, "other.yaml", AGENT.format(name="other", about="Works."))
        write(folder, "team.yaml", TEAM.format(agents="helper.yaml, other.yaml"))

    assert restarted(commands, come, "reload: started") == {"other"}
    assert commands.run("run", "other", "x").stdout == "second\n"
    gone = restarted(
        commands,
        lambda: write(folder, "team.yaml", TEAM.format(agents="helper.yaml")),
        "reload: stopped, it is in the team no more",
    )
    assert gone == {"other"}
    assert stop(up) == 0


def test_what_is_wrong_is_told_and_the_old_service_goes_on(commands: FolderCommands) -> None:
    folder = commands.folder
    up = commands.up("--reload")
    before = pids(commands)
    broken = {
        "helper.yaml": ("nonsense: [", "not YAML"),
        "tools.py": ("def broken(:\n", "not valid Python"),
        "script.yaml": ("rules: 7\n", "the script before goes on"),
    }
    for name, (text, words) in broken.items():
        write(folder, name, text)
        until(commands, words)
        eventually(lambda: "goes on" in commands.log("up").splitlines()[-1], what="that it goes on")
    assert pids(commands) == before
    assert commands.run("run", "helper", "x").stdout == "first\n"

    # What is mended is taken up, the new agent's file among it.
    write(folder, "helper.yaml", AGENT.format(name="helper", about="Helps."))
    until(commands, "reload: restarted")
    write(folder, "team.yaml", TEAM.format(agents="helper.yaml, missing.yaml"))
    until(commands, "there is no file")
    write(folder, "missing.yaml", AGENT.format(name="new", about="Works."))
    until(commands, "reload: started")
    assert {"new", "helper"} <= pids(commands).keys()
    assert commands.run("run", "new", "x").stdout == "first\n"
    up.send_signal(signal.SIGTERM)
    assert up.wait(patience()) == 0
    assert [pid for pid in before.values() if Path(f"/proc/{pid}").exists()] == []


def test_what_changes_while_it_starts_is_taken_up(commands: FolderCommands) -> None:
    up = commands.start("up", "--port", "0", "--reload")
    until(commands, "agent helper: health at")  # it has read its file
    write(commands.folder, "helper.yaml", "nonsense: [")
    until(commands, "not YAML")
    until(commands, "goes on")
    write(commands.folder, "helper.yaml", AGENT.format(name="helper", about="Helps."))
    until(commands, "reload: restarted")
    assert commands.run("run", "helper", "x").stdout == "first\n"
    assert stop(up) == 0


@pytest.mark.parametrize("words", [("--run",), ("--secure",)])
def test_it_does_not_go_with_everything(commands: FolderCommands, words: tuple[str, ...]) -> None:
    refused = commands.run("up", "--reload", *words)
    assert holds(only_line(refused, 2), "--reload", *words)
