"""Agents on A2A's official SDKs as members: version 1.0 and 0.3, JSON-RPC and HTTP+JSON, with kills and questions."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from clients.versions import PYTHON
from harness.http_line import HttpLine
from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

HERE = Path(__file__).parent
PYTHON_03 = PYTHON.parents[2] / "a2a-03-venv" / "bin" / "python"
FAR = """
apiVersion: cadre.dev/v1
kind: RemoteAgent
metadata: {{name: far}}
spec:
  description: Knows the law.
  card: {url}/.well-known/agent-card.json
  poll: 1s
"""

WAYS = {
    "JSONRPC 1.0": (PYTHON, "a2a_server_1.py", ["GRPC 1.0", "JSONRPC 1.0", "HTTP+JSON 1.0"]),
    "HTTP+JSON 1.0": (PYTHON, "a2a_server_1.py", ["JSONRPC 0.3", "HTTP+JSON 1.0"]),
    "HTTP+JSON 0.3 of 1.0": (PYTHON, "a2a_server_1.py", ["HTTP+JSON 0.3"]),
    "JSONRPC 0.3": (PYTHON_03, "a2a_server_03.py", ["JSONRPC"]),
    "HTTP+JSON 0.3": (PYTHON_03, "a2a_server_03.py", ["HTTP+JSON"]),
}
"""The environment, the server and what its card offers, by the way in which Cadre then asks."""
POSTS = {"JSONRPC 1.0": "SendMessage", "HTTP+JSON 1.0": "/message:send", "JSONRPC 0.3": "message/send"}


class Far(NamedTuple):
    """A deployment with one member, and the agent on the SDK that it stands for."""

    way: str
    stack: Stack
    gateway: Gateway
    line: HttpLine
    server: str

    def journal(self) -> list[str]:
        """The ids of the messages that the agent has read."""
        found: list[str] = httpx2.get(f"{self.server}/journal").json()
        return found

    def said_by(self, run: str) -> list[str]:
        return [message for message in self.journal() if message.startswith(run)]

    def release(self) -> None:
        httpx2.post(f"{self.server}/release").raise_for_status()

    def working(self, run: str) -> None:
        self.gateway.wait_for(run, "remote.updated", state="working")


@contextlib.contextmanager
def serving(python: Path, server: str, offered: list[str], port: int, url: str) -> Iterator[str]:
    """The address of an agent on the SDK, whose card names `url`."""
    process = subprocess.Popen([str(python), str(HERE / server), str(port), url, *offered])
    address = f"http://127.0.0.1:{port}"

    def is_there() -> bool:
        assert process.poll() is None, "the server died"
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(f"{address}/journal").status_code == 200
        return False

    try:
        eventually(is_there, what="the agent on the SDK listens")
        yield address
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def deployed(folder: Path, way: str, offered: list[str], python: Path, server: str) -> Iterator[Far]:
    port = free_port()
    with (
        Stack(folder) as stack,
        HttpLine(f"http://127.0.0.1:{port}") as line,
        serving(python, server, offered, port, line.url) as address,
    ):
        file = folder / "far.yaml"
        file.write_text(FAR.format(url=line.url))
        stack.agent(file, start=False)
        stack.tools(file, name="far-tools", start=False)
        yield Far(way, stack, stack.open_gateway(1), line, address)


@pytest.fixture(scope="module", params=sorted(WAYS))
def far(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    python, server, offered = WAYS[request.param]
    with deployed(tmp_path_factory.mktemp("far"), request.param, offered, python, server) as found:
        yield found


def test_answers_are_values_and_files(far: Far) -> None:
    answer = far.gateway.answer("far", "file", inputs={"case": "0815"})
    assert answer[:2] == ["Done: file", {"a": 1}]
    (deed,) = [one for one in answer if isinstance(one, dict) and "$file" in one]
    assert (deed["$file"]["size"], deed["$file"]["media_type"]) == (6, "application/pdf")
    assert answer[-1] == {"case": "0815"}
    assert far.gateway.answer("far", "message") == "Hello."
    assert any(POSTS.get(far.way, "/v1/message:send") == method for method in far.line.methods)


def test_a_failure_says_why(far: Far) -> None:
    ended = far.gateway.finished(far.gateway.submit("far", "fail"))
    assert (ended["state"], ended["error"]["type"]) == ("error", "RemoteAgentFailed")
    assert "no such law" in ended["error"]["message"]


def test_a_question_is_asked_once(far: Far) -> None:
    run = far.gateway.submit("far", "ask me")
    held = far.gateway.wait_for(run, "approval.requested")["event"]
    assert held["reason"] == "Which one?"
    word: dict[str, Any] = {"verdict": "approved", "feedback": "The red one."}
    far.gateway.request("POST", f"/v1/approvals/{held['call']}", json=word).raise_for_status()
    assert far.gateway.succeeded(run) == "You said: The red one."
    assert len(far.said_by(run)) == 2


def test_an_end_is_passed_on(far: Far) -> None:
    run = far.gateway.submit("far", "hold")
    far.working(run)
    far.gateway.request("POST", f"/v1/runs/{run}/cancel").raise_for_status()
    assert far.gateway.finished(run)["state"] == "cancelled"
    calls = [data["event"] for _, data in far.gateway.events(run) if "event" in data]
    (ended,) = [one for one in calls if one["type"] == "tool.answered" and one["tool"] == "far_cancel_task"]
    assert ended["output"]["state"] == "canceled"


def test_an_executor_killed_between_send_and_answer(far: Far) -> None:
    """Version 1.0 lists tasks with their messages, so the task is found; version 0.3 does not."""
    far.line.hold()
    run = far.gateway.submit("far", "quick")
    far.line.wait_answered()
    eventually(lambda: len(far.said_by(run)) == 1, what="the message has arrived")
    far.stack.services["far-tools"].kill()
    far.line.release()
    far.stack.services["far-tools"].start()
    if far.way.endswith("1.0") and "of" not in far.way:
        assert far.gateway.succeeded(run) == "Done: quick"
    else:
        ended = far.gateway.finished(run)
        assert (ended["state"], ended["error"]["type"]) == ("error", "Interrupted")
    assert len(far.said_by(run)) == 1, "nothing is sent twice"


def test_killed_processes_go_on_with_the_task(far: Far) -> None:
    run = far.gateway.submit("far", "hold")
    far.working(run)
    for name in ("far", "far-tools"):
        far.stack.services[name].kill()
        far.stack.services[name].start()
    far.release()
    assert far.gateway.succeeded(run) == "Done: hold"
    assert len(far.said_by(run)) == 1


def test_a_card_of_grpc_alone_is_refused(tmp_path: Path) -> None:
    python, server, _ = WAYS["JSONRPC 1.0"]
    with deployed(tmp_path, "", ["GRPC 1.0"], python, server) as far:
        ended = far.gateway.finished(far.gateway.submit("far", "quick"))
        assert ended["state"] == "error"
        assert "GRPC 1.0" in ended["error"]["message"]
        assert "HTTP+JSON 1.0" in ended["error"]["message"]
        assert far.journal() == []


def test_the_environments_have_the_versions_that_the_page_names() -> None:
    for python, version in ((PYTHON, "1."), (PYTHON_03, "0.3.")):
        command = [str(python), "-c", "from importlib.metadata import version; print(version('a2a-sdk'))"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=True).stdout
        assert told.startswith(version)
