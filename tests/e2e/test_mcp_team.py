"""A team that names MCP servers among its tools: checked, started by `cadre up`, killed in the middle of a call."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.folder_commands import FolderCommands, stop
from harness.guard import Guard
from harness.patience import eventually, patience

pytest.importorskip("mcp")

SERVER = Path(__file__).parents[1] / "integration" / "mcp_server.py"
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: desk}
spec: {agents: [helper.yaml], tools: [mcp.json], script: script.yaml}
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: helper}
spec: {description: Helps., tools: [desk_add, desk_spend]}
"""
SCRIPT = """
rules:
  - name: add
    match: {first: 'add', has_tool: false}
    reply:
      tool_calls: [{name: desk_add, arguments: {a: 2, b: 3}}]
  - name: spend
    match: {first: 'spend', has_tool: false}
    reply:
      tool_calls:
        - name: desk_spend
          arguments:
            folder: "{{ find(first, 'in (.+) at') }}"
            port: "{{ number(find(first, 'at (.+)')) }}"
  - name: answer
    match: {has_tool: true}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: "{{ tool }}"}}]
"""


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture
def commands(tmp_path: Path, guard: Guard) -> FolderCommands:
    for name, text in {"team.yaml": TEAM, "helper.yaml": AGENT, "script.yaml": SCRIPT}.items():
        (tmp_path / name).write_text(text)
    return FolderCommands(tmp_path, guard)


def write_servers(folder: Path, **entry: Any) -> None:
    server = {"command": sys.executable, "args": [str(SERVER), "stdio"], **entry}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": server}}))


def test_what_is_missing_is_told_before_anything_starts(commands: FolderCommands, tmp_path: Path) -> None:
    write_servers(tmp_path, command="no-such-server")
    checked, doctor = commands.run("check", "."), commands.run("doctor")
    for said in (checked.stdout + checked.stderr, doctor.stdout):
        assert "mcpServers.desk: the command 'no-such-server' is not found" in said
    write_servers(tmp_path, cadre={"allow": ["add"]})
    checked = commands.run("check", ".")
    assert "desk_spend" in checked.stdout + checked.stderr
    assert "there are desk_add, " in checked.stdout + checked.stderr


def test_a_team_with_a_server_that_dies_in_a_call(commands: FolderCommands, tmp_path: Path) -> None:
    write_servers(tmp_path)
    up = commands.up()
    assert "5" in commands.run("run", "helper", "add").stdout
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(patience())
        task = f"spend in {tmp_path} at {door.getsockname()[1]}"
        run = commands.run("run", "helper", task, "--detach").stdout.strip()
        visitor, _ = door.accept()
        with visitor, visitor.makefile() as told:
            os.kill(json.loads(told.readline())["pid"], signal.SIGKILL)

    def shown() -> dict[str, Any]:
        return dict(json.loads(commands.run("show", run, "-o", "json").stdout))

    eventually(lambda: shown()["state"] == "success", what="the run ends", state=lambda: str(shown()))
    assert "outcome unknown: MCP server desk: " in shown()["output"]
    assert len((tmp_path / "effects.txt").read_text().splitlines()) == 1
    # Neither the run nor the server is gone for good.
    assert "5" in commands.run("run", "helper", "add").stdout
    assert stop(up) == 0
