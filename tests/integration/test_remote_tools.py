"""The tools that speak A2A, before a real server that is no Cadre: cards, losses, files, refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.a2a.client import RemoteRefused
from cadre.adapters.remote_agents import tools_of
from cadre.kinds.remote.records import RemoteSection
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted
from cadre.tools.files import File

Json = dict[str, Any]
SAID = {"message_id": "m1", "text": "Hi"}


class Peer:
    """An agent of another make: `results` are what it answers, `drops` whether it hangs up in place of that."""

    def __init__(self) -> None:
        self.results: Json = {}
        self.drops = False
        self.status = 200
        self.requests: list[tuple[Json, dict[str, str]]] = []
        self.extensions: list[Json] = []
        self.interfaces: list[Json] | None = None
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                own = [{"url": peer.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
                interfaces = own if peer.interfaces is None else peer.interfaces
                peer._answer(
                    self, {"supportedInterfaces": interfaces, "capabilities": {"extensions": peer.extensions}}
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                peer.requests.append((body, {name.lower(): text for name, text in self.headers.items()}))
                if peer.drops:
                    self.close_connection = True
                    return
                peer._answer(self, {"jsonrpc": "2.0", "id": 1, **peer.results})

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, handler: BaseHTTPRequestHandler, value: Json) -> None:
        content = json.dumps(value).encode()
        handler.send_response(self.status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def call(self, tool: int, arguments: Json, deliveries: int = 1, **fields: Any) -> Any:
        section = RemoteSection(**({"card": f"{self.url}/card"} | fields))
        spec = AgentSpec(name="far", description="Far.", kind="remote", **sections(section))
        context = ToolContext(call_id="c", deliveries=deliveries, traceparent="00-1-2-01")
        made = tools_of(spec, Path(), to_serve=True)[tool]
        return asyncio.run(made.call(arguments, context))

    def send(self, **fields: Any) -> Any:
        return self.call(0, SAID, **fields)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.stop()


def task(state: str, **fields: Any) -> Json:
    return {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **fields}


def test_what_is_sent_and_found(peer: Peer) -> None:
    peer.results = {"result": {"task": task("WORKING")}}
    assert peer.send() == {"state": "working", "task": "t1", "context": "c1", "said": ""}
    body, headers = peer.requests[0]
    assert body["method"] == "SendMessage"
    assert body["params"]["message"] == {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    assert body["params"]["configuration"]["returnImmediately"] is True
    assert (headers["a2a-version"], headers["traceparent"]) == ("1.0", "00-1-2-01")


@pytest.mark.parametrize("version", ["1.0.4", "1.0"])
def test_the_patch_of_the_protocols_version_does_not_count(peer: Peer, version: str) -> None:
    peer.interfaces = [{"url": peer.url, "protocolBinding": "JSONRPC", "protocolVersion": version}]
    peer.results = {"result": {"task": task("WORKING")}}
    assert peer.send()["state"] == "working"


def test_a_message_in_place_of_a_task_is_the_answer(peer: Peer) -> None:
    peer.results = {"result": {"message": {"messageId": "x", "parts": [{"text": "Hello"}, {"text": "you"}]}}}
    assert peer.send() == {"state": "completed", "answer": "Hello\nyou"}


def test_artifacts_are_values_and_files(peer: Peer) -> None:
    raw = {"raw": base64.b64encode(b"%PDF-1").decode(), "filename": "deed.pdf"}
    parts = [{"text": "See:"}, {"data": {"a": 1}}, raw, {"url": "https://x.example/y", "filename": "y"}]
    peer.results = {"result": task("COMPLETED", artifacts=[{"artifactId": "1", "parts": parts}])}
    answer = peer.call(1, {"task_id": "t1"})["answer"]
    assert answer[:2] == ["See:", {"a": 1}]
    assert isinstance(answer[2], File)
    assert (answer[2].data, answer[2].media_type) == (b"%PDF-1", "application/pdf")
    assert answer[3] == {"url": "https://x.example/y", "name": "y"}


def test_a_lost_answer_is_asked_for_again_only_of_who_says_so(peer: Peer) -> None:
    peer.drops = True
    with pytest.raises(CallInterrupted, match="card"):
        peer.send()
    peer.extensions = [{"uri": MESSAGES_ONCE}]
    assert "lost" in peer.send()
    assert "lost" in peer.send(card="", url=peer.url, idempotent=True)
    assert "lost" in peer.call(1, {"task_id": "t1"}), "asking does no harm"


def test_a_sender_that_died_has_perhaps_sent(peer: Peer) -> None:
    with pytest.raises(CallInterrupted, match="has died"):
        peer.send(deliveries=2)
    assert peer.requests == []
    peer.extensions, peer.results = [{"uri": MESSAGES_ONCE}], {"result": {"task": task("WORKING")}}
    assert peer.send(deliveries=2)["task"] == "t1"


def test_what_never_left_is_sent_again(peer: Peer) -> None:
    peer.stop()
    assert "lost" in peer.send()
    assert "lost" in peer.send(card="", url=peer.url)


@pytest.mark.parametrize(
    ("status", "results", "what"),
    [
        (401, {}, r"401.*`headers`"),
        (404, {}, "404"),
        (200, {"error": {"code": -32001, "message": "no such task"}}, "far: no such task"),
        (200, {"result": {"surprise": 1}}, "A2A"),
    ],
)
def test_a_refusal_is_told(peer: Peer, status: int, results: Json, what: str) -> None:
    peer.status, peer.results = status, results
    with pytest.raises(RemoteRefused, match=what):
        peer.call(1, {"task_id": "t1"}, card="", url=peer.url)


@pytest.mark.parametrize(
    ("status", "results"), [(503, {}), (200, {"error": {"code": -32603, "message": "later"}})]
)
def test_who_is_busy_is_asked_again(peer: Peer, status: int, results: Json) -> None:
    peer.status, peer.results = status, results
    assert "lost" in peer.call(1, {"task_id": "t1"}, card="", url=peer.url)


def test_a_card_must_lead_somewhere(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.interfaces = [{"url": peer.url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
    with pytest.raises(RemoteRefused, match=r"GRPC 1\.0.*JSONRPC 1\.0"):
        peer.send()
    elsewhere = "http://elsewhere.example/a2a"
    peer.interfaces = [{"url": elsewhere, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    monkeypatch.setenv("FAR_KEY", "s3cret")
    with pytest.raises(RemoteRefused, match="`url`"):
        peer.send(headers={"X-Key": "${FAR_KEY}"})


def test_secrets_go_along_and_show_in_no_error(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "s3cret")
    peer.results = {"result": {"task": task("WORKING")}}
    peer.send(headers={"X-Key": "key ${FAR_KEY}"})
    assert peer.requests[0][1]["x-key"] == "key s3cret"
    peer.stop()
    lost = peer.call(1, {"task_id": "t1"}, card="", url=f"{peer.url}/s3cret", headers={"X": "${FAR_KEY}"})
    assert "s3cret" not in lost["lost"]
    assert "***" in lost["lost"]
