"""Every door abused in the same ways: broken requests, wrong versions, ten megabytes, callers that hang up or do not
read, a killed gateway. Each learns so in its protocol, and no run is lost or begun twice."""

import contextlib
import importlib.util
import json
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from cadre.adapters.nats.streams import jetstream
from harness.exposition import series_of, total
from harness.next_version import NEXT
from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
CALLER = "0af7651916cd43dd8448eb211c80319c"

Json = dict[str, Any]


def _chat(task: str, key: str) -> Json:
    return {"model": "chief", "messages": [{"role": "user", "content": task}], "stream": True}


def _response(task: str, key: str) -> Json:
    return {"model": "chief", "input": task, "stream": True}


def _message(task: str, key: str) -> Json:
    return {"message": {"messageId": key, "role": "ROLE_USER", "parts": [{"text": task}]}}


def _rpc(task: str, key: str) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": _message(task, key)}


def _agui(task: str, key: str) -> Json:
    said = [{"id": "1", "role": "user", "content": task}]
    return {"threadId": f"thread-{key}", "runId": key, "messages": said, "tools": [], "context": []}


def _call(task: str, key: str) -> Json:
    meta = {"cadre.dev/idempotency-key": key, "progressToken": 1}
    asked = {"name": "chief", "arguments": {"task": task, "session": key}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}


class Door(NamedTuple):
    """One protocol: where and how a task is streamed by it, and where its errors say what is wrong."""

    name: str
    path: str
    ask: Callable[[str, str], Json]
    error: Callable[[Json], object]
    other_version: tuple[Json, Json]
    """Headers and what more is in the body of a request in a version of the protocol that the door does not speak."""
    headers: Json = {}  # noqa: RUF012 - a default of a tuple, which no one changes
    again: Json = {}  # noqa: RUF012 - the same
    """Headers of a request that is sent once more; the other protocols' bodies say so by their ids."""


def _last_of(answer: str) -> Json:
    """The answer, or the last event of one that is a stream."""
    told: Json = json.loads(answer.rpartition("data: ")[2])
    return told


def _error(told: Json) -> object:
    return told["error"]["message"]


def _error_of_tool(told: Json) -> object:
    return _error(told) if "error" in told else told["result"]["isError"]


_RETRY = {"x-stainless-retry-count": "1"}
_LATER: tuple[Json, Json] = ({"A2A-Version": "7.0"}, {})
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
HAS_MCP = importlib.util.find_spec("mcp") is not None
DOORS = [
    Door("openai", "/v1/chat/completions", _chat, _error, ({}, {"messages": "Hi"}), again=_RETRY),
    Door("openai", "/v1/responses", _response, _error, ({}, {"input": None, "prompt": "Hi"}), again=_RETRY),
    Door("a2a", "/a2a/chief", _rpc, _error, _LATER),
    Door("a2a", "/a2a/chief/message:stream", _message, _error, _LATER),
    Door("agui", "/agui/chief", _agui, lambda told: told["detail"], ({}, {"runId": None, "run_id": "k"})),
    *(
        [Door("mcp", "/mcp", _call, _error_of_tool, ({"MCP-Protocol-Version": "2031-01-01"}, {}), _MCP)]
        if HAS_MCP
        else []
    ),
]


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """The gateway speaks anything that is installed here."""
    stack.environment["CADRE_DOORS"] = ",".join({door.name: "" for door in DOORS})


each_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.path)


def runs(gateway: Gateway, task: str = "") -> list[Json]:
    found = gateway.request("GET", "/v1/runs", params={"limit": "500"}).json()["runs"]
    return [run for run in found if task in run["task"]]


@each_door
def test_what_is_no_request_is_told_and_begins_nothing(gateway: Gateway, door: Door) -> None:
    def refused() -> float:
        told = series_of(gateway.request("GET", "/metrics").text)
        family = "cadre_door_requests_total"
        return sum(
            value
            for (name, labels), value in told.items()
            if name == family and ("cadre_door", door.name) in labels and dict(labels)["error_type"]
        )

    good = json.dumps(door.ask("Hi", "k")).encode()
    bad: list[tuple[bytes, Json]] = [
        (good[:-1], {}),
        (b"\xff\xfe" + good, {}),
        (b"[" * 100_000, {}),
        (b"[]", {}),
        (json.dumps(door.ask("x" * 10_000_000, "k")).encode(), {}),
        (json.dumps(door.ask("Hi", "k") | door.other_version[1]).encode(), door.other_version[0]),
    ]
    before, counted = len(runs(gateway)), refused()
    for body, headers in bad:
        answer = gateway.request(
            "POST",
            door.path,
            content=body,
            headers={"content-type": "application/json", **door.headers, **headers},
        )
        assert answer.status_code < 500, answer.text
        assert door.error(_last_of(answer.text)), answer.text
    assert len(runs(gateway)) == before
    assert refused() == counted + len(bad)


class SlowCaller:
    """Sends a request, and reads the answer when it is asked to."""

    def __init__(self, gateway: Gateway, door: Door, body: Json, headers: Json) -> None:
        content = json.dumps(body).encode()
        head = {
            "Host": "x",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Connection": "close",
            "traceparent": f"00-{CALLER}-b7ad6b7169203331-01",
            **door.headers,
            **headers,
        }
        lines = [f"POST {door.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self._socket = socket.socket()
        # Hardly any of the answer fits in here.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.settimeout(patience())
        self._socket.connect(("127.0.0.1", gateway.service.port))
        self._socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    def hang_up_in_the_middle(self) -> None:
        """Reads the beginning, and resets the connection."""
        assert b" 200 " in self._socket.recv(64)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def read(self) -> str:
        """All there is to read."""
        with self._socket:
            return b"".join(iter(lambda: self._socket.recv(65536), b"")).decode()


@each_door
def test_who_hangs_up_or_does_not_read_costs_nothing_and_finds_its_run(
    gateway: Gateway, stack: Stack, door: Door, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    task, key = f"have clerk: refund {books} 5", tmp_path.name
    stack.services["clerk"].signal(signal.SIGSTOP)
    try:
        caller = SlowCaller(gateway, door, door.ask(task, key), {})
        eventually(lambda: len(runs(gateway, task)) > 0, what="the run has begun")
        caller.hang_up_in_the_middle()
        slow = SlowCaller(gateway, door, door.ask(task, key), door.again)
    finally:
        stack.services["clerk"].signal(signal.SIGCONT)
    (run,) = [one for one in runs(gateway, task) if one["parent"] is None]
    gateway.finished(run["id"])
    assert gateway.request("GET", "/v1/agents").status_code == 200, "others are answered meanwhile"
    assert "refunded 5" in slow.read()
    assert done(books) == ["refund 5"]
    assert len(runs(gateway, task)) == 1
    trace = gateway.request("GET", f"/v1/runs/{run['id']}/trace", params={"format": "otlp"}).text
    assert CALLER in trace, "the caller's trace is linked"
    # The requests to OpenAI's doors name no session, so their runs are in none.
    assert ("gen_ai.conversation.id" in trace) == (door.name != "openai")
    counted = httpx2.get(f"{gateway.service.url}/metrics", timeout=patience()).text
    assert total(series_of(counted), "cadre_door_requests_total", cadre_door=door.name) > 0


@each_door
def test_a_gateway_killed_under_a_request_begins_nothing_twice(
    gateway: Gateway, stack: Stack, door: Door, tmp_path: Path
) -> None:
    """Its client sends the request again, and gets the answer of the one run."""
    books = tmp_path / "books"
    task, key = f"have clerk: refund {books} 7", tmp_path.name
    stack.services["clerk"].signal(signal.SIGSTOP)
    try:
        caller = SlowCaller(gateway, door, door.ask(task, key), {})
        eventually(lambda: len(runs(gateway, task)) > 0, what="the run has begun")
        gateway.service.kill()
        with contextlib.suppress(ConnectionError):
            assert "refunded" not in caller.read()
        gateway.service.start()
    finally:
        stack.services["clerk"].signal(signal.SIGCONT)
    gateway.wait_offered(3)
    assert "refunded 7" in SlowCaller(gateway, door, door.ask(task, key), door.again).read()
    assert done(books) == ["refund 7"]
    assert len([one for one in runs(gateway, task) if one["parent"] is None]) == 1


def says_code(answer: str, code: str) -> bool:
    """Return whether an answer holds the code of a problem, in the spelling of its protocol."""
    return any(f'"{spelt}' in answer for spelt in (code, code.replace("-", "_"), code.replace("-", "_").upper()))


@each_door
async def test_entries_of_a_newer_version_end_the_answer_and_are_named(
    gateway: Gateway, stack: Stack, door: Door, tmp_path: Path
) -> None:
    """As while an upgrade is under way, when a newer agent goes on with a run before the gateway is upgraded."""
    task, key = f"have clerk: refund {tmp_path / 'books'} 5", tmp_path.name
    stack.services["clerk"].signal(signal.SIGSTOP)
    try:
        caller = SlowCaller(gateway, door, door.ask(task, key), {})
        eventually(lambda: len(runs(gateway, task)) > 0, what="the run has begun")
        (run,) = [one["id"] for one in runs(gateway, task)]
        gateway.wait_for(run, "delegate.started")
        async with stack.platform() as platform:
            entry = {
                "type": "entry",
                "v": NEXT,
                "tree": run,
                "run": run,
                "n": 99,
                "events": [{"type": "dreamt"}],
            }
            subject = platform.topology.journal(run, run)
            await jetstream.append(platform.nc, subject, json.dumps(entry).encode())
        assert says_code(caller.read(), "newer-version")
        again = SlowCaller(gateway, door, door.ask(task, key), door.again)
        assert says_code(again.read(), "newer-version")
    finally:
        stack.services["clerk"].signal(signal.SIGCONT)
    assert len([one for one in runs(gateway, task) if one["parent"] is None]) == 1
