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

from cadre.adapters.a2a.bindings import RemoteRefused
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
        self.card: Json | None = None
        """Of version 0.3, in place of one that names `interfaces`."""
        self.is_http = False
        """True if the results are answered without JSON-RPC around them."""
        self.paths: list[str] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/card":
                    peer.paths.append(f"GET {self.path}")
                    peer._answer(self, peer.results)
                    return
                if peer.card is not None:
                    peer._answer(self, peer.card)
                    return
                own = [{"url": peer.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
                interfaces = own if peer.interfaces is None else peer.interfaces
                peer._answer(self, {"supportedInterfaces": interfaces, "capabilities": {"extensions": peer.extensions}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                peer.paths.append(f"POST {self.path}")
                peer.requests.append((body, {name.lower(): text for name, text in self.headers.items()}))
                if peer.drops:
                    self.close_connection = True
                    return
                about = {} if peer.is_http else {"jsonrpc": "2.0", "id": 1}
                peer._answer(self, about | peer.results)

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
    peer.results = {"result": {"tasks": [task("WORKING", history=[{"messageId": "m0"}])]}}
    with pytest.raises(CallInterrupted, match="has died"):
        peer.send(deliveries=2)
    assert [body["method"] for body, _ in peer.requests] == ["ListTasks"]
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


@pytest.mark.parametrize(("status", "results"), [(503, {}), (200, {"error": {"code": -32603, "message": "later"}})])
def test_who_is_busy_is_asked_again(peer: Peer, status: int, results: Json) -> None:
    peer.status, peer.results = status, results
    assert "lost" in peer.call(1, {"task_id": "t1"}, card="", url=peer.url)


def offer(url: str, binding: str, version: str = "1.0", **fields: str) -> Json:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version, **fields}


def test_a_card_must_lead_somewhere(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.interfaces = [offer(peer.url, "GRPC"), offer(peer.url, "HTTP+JSON", "2.1")]
    with pytest.raises(RemoteRefused, match=r"GRPC 1\.0, HTTP\+JSON 2\.1.*JSONRPC 1\.0.*HTTP\+JSON 0\.3"):
        peer.send()
    peer.card = {"url": peer.url, "preferredTransport": "GRPC", "protocolVersion": "0.3.0"}
    with pytest.raises(RemoteRefused, match=r"GRPC 0\.3\.0.*JSONRPC 0\.3"):
        peer.send()
    peer.card = {"name": "far"}
    with pytest.raises(RemoteRefused, match="supportedInterfaces"):
        peer.send()
    peer.card, elsewhere = None, "http://elsewhere.example/a2a"
    peer.interfaces = [offer(elsewhere, "HTTP+JSON", "0.3")]
    monkeypatch.setenv("FAR_KEY", "s3cret")
    with pytest.raises(RemoteRefused, match=r"`url`.*`transport: HTTP\+JSON 0\.3`"):
        peer.send(headers={"X-Key": "${FAR_KEY}"})
    peer.interfaces.append(offer(peer.url, "JSONRPC"))
    peer.results = {"result": {"task": task("WORKING")}}
    assert peer.send(headers={"X-Key": "${FAR_KEY}"})["task"] == "t1", "headers go where the card came from"


def test_the_card_says_what_is_spoken(peer: Peer) -> None:
    peer.is_http, peer.results = True, {"task": task("WORKING")}
    peer.interfaces = [
        offer(peer.url, "GRPC"),
        offer(peer.url, "JSONRPC", "0.3"),
        offer(f"{peer.url}/rest/", "http+json", "1.0.2", tenant="a b"),
        offer(peer.url, "JSONRPC"),
    ]
    assert peer.send()["task"] == "t1"
    body, headers = peer.requests[0]
    assert (peer.paths, headers["a2a-version"], body["tenant"]) == (
        ["POST /rest/a%20b/message:send"],
        "1.0",
        "a b",
    )
    assert body["message"]["parts"] == [{"text": "Hi"}]
    peer.results = task("WORKING")
    peer.call(1, {"task_id": "t/1"})
    peer.call(2, {"task_id": "t/1"})
    assert peer.paths[1:] == [
        "GET /rest/a%20b/tasks/t%2F1?historyLength=0",
        "POST /rest/a%20b/tasks/t%2F1:cancel",
    ]
    with pytest.raises(RemoteRefused, match=r"its file wants `transport: HTTP\+JSON 0\.3`"):
        peer.send(transport="HTTP+JSON 0.3")


OLD_TASK = {
    "kind": "task",
    "id": "t1",
    "contextId": "c1",
    "status": {
        "state": "input-required",
        "timestamp": "10:00",
        "message": {"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "Which one?"}]},
    },
}


def test_version_03_by_json_rpc(peer: Peer) -> None:
    peer.card = {"url": peer.url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
    peer.results = {"result": OLD_TASK}
    sent = SAID | {"data": [{"a": 1}, 5], "images": ["data:image/png;base64,aGk="]}
    found = peer.call(0, sent)
    assert (found["state"], found["said"], found["status_id"]) == ("input_required", "Which one?", "10:00")
    body, headers = peer.requests[0]
    assert (body["method"], headers["a2a-version"]) == ("message/send", "0.3")
    assert body["params"]["configuration"] == {"blocking": False}
    assert body["params"]["message"] == {
        "kind": "message",
        "messageId": "m1",
        "role": "user",
        "parts": [
            {"kind": "text", "text": "Hi"},
            {"kind": "data", "data": {"a": 1}},
            {"kind": "data", "data": {"value": 5}},
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}},
        ],
    }
    peer.results = {"result": {"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "Hello"}]}}
    assert peer.send() == {"state": "completed", "answer": "Hello"}
    peer.results = {"result": OLD_TASK | {"status": {"state": "canceled"}}}
    assert peer.call(2, {"task_id": "t1"})["state"] == "canceled"
    assert [body["method"] for body, _ in peer.requests[1:]] == ["message/send", "tasks/cancel"]


def test_version_03_by_http(peer: Peer) -> None:
    peer.card = {
        "url": "http://elsewhere.example",
        "preferredTransport": "GRPC",
        "additionalInterfaces": [{"url": peer.url, "transport": "HTTP+JSON"}],
    }
    raw = base64.b64encode(b"%PDF-1").decode()
    twice = base64.b64encode(raw.encode()).decode()
    deed = {"mimeType": "application/pdf", "name": "deed.pdf"}
    files = [{"file": {"fileWithBytes": content, **deed}} for content in (raw, twice)]
    parts = [{"text": "See:"}, {"data": {"data": {"a": 1}}}, *files]
    done = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
    peer.is_http, peer.results = True, {"task": done | {"artifacts": [{"artifactId": "1", "parts": parts}]}}
    answer = peer.call(0, SAID | {"data": [{"a": 1}]})["answer"]
    assert answer[:2] == ["See:", {"a": 1}]
    assert [file.data for file in answer[2:]] == [b"%PDF-1"] * 2, "however it is encoded"
    assert peer.paths == ["POST /v1/message:send"]
    said = peer.requests[0][0]["message"]
    assert said["content"] == [{"text": "Hi"}, {"data": {"data": {"a": 1}}}]
    peer.results = {"id": "t1", "status": {"state": "TASK_STATE_CANCELLED"}}
    assert peer.call(1, {"task_id": "t1"})["state"] == "canceled"
    peer.results, peer.status = {"message": "no such task"}, 404
    here: Json = {"card": "", "url": peer.url, "transport": "HTTP+JSON 0.3"}
    with pytest.raises(RemoteRefused, match="far: no such task"):
        peer.call(2, {"task_id": "t1"}, **here)
    peer.status = 500
    assert "lost" in peer.call(1, {"task_id": "t1"}, **here)


def test_the_task_of_a_message_whose_answer_was_lost_is_found(peer: Peer) -> None:
    mine = task("WORKING", history=[{"messageId": "m0"}, {"messageId": "m1"}])
    peer.is_http, peer.interfaces = True, [offer(peer.url, "HTTP+JSON")]
    peer.results = {"tasks": [task("FAILED"), mine], **mine}
    assert peer.send(deliveries=2)["task"] == "t1"
    peer.drops = True
    assert peer.send()["task"] == "t1"
    assert [path for path in peer.paths if "message:send" in path] == ["POST /message:send"], "sent once"
    reply = SAID | {"task": {"taskId": "t1"}}
    assert peer.call(0, reply, deliveries=2)["task"] == "t1"
    with pytest.raises(CallInterrupted):
        peer.call(0, reply | {"message_id": "m9"}, deliveries=2)
    peer.card = {"url": peer.url, "preferredTransport": "HTTP+JSON"}
    paths = len(peer.paths)
    with pytest.raises(CallInterrupted):
        peer.send(deliveries=2)
    assert len(peer.paths) == paths, "version 0.3 lists no tasks"


def test_secrets_go_along_and_show_in_no_error(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "s3cret")
    peer.results = {"result": {"task": task("WORKING")}}
    peer.send(headers={"X-Key": "key ${FAR_KEY}"})
    assert peer.requests[0][1]["x-key"] == "key s3cret"
    peer.stop()
    lost = peer.call(1, {"task_id": "t1"}, card="", url=f"{peer.url}/s3cret", headers={"X": "${FAR_KEY}"})
    assert "s3cret" not in lost["lost"]
    assert "***" in lost["lost"]
