"""Variables that name proxies and certificates: real services past them on this machine, and what is said elsewhere."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from harness.command import commands_of
from harness.patience import eventually
from harness.stack import Stack

SCRIPT = """
rules:
  - name: all
    match: {}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: Fine.}}]
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  description: Asks.
  model: {{{model}}}
"""
UNUSABLE = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "nonsense://x",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "SSL_CERT_FILE": "/nowhere/certificates.pem",
}


@pytest.mark.parametrize("variable", UNUSABLE)
def test_a_team_on_this_machine_works_past_what_cannot_be_used(tmp_path: Path, variable: str) -> None:
    """The gateway, its client, the agent's model, an embeddings endpoint and a receiver of traces."""
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "near.yaml").write_text(AGENT.format(name="near", model=""))
    far = "url: 'https://models.example/v1', name: m, retries: 0, patience: 1"
    (tmp_path / "far.yaml").write_text(AGENT.format(name="far", model=far))
    with Stack(tmp_path) as stack:
        stack.environment[variable] = UNUSABLE[variable]
        model = stack.model(tmp_path / "script.yaml")
        stack.agent(tmp_path / "near.yaml", start=False)
        stack.agent(tmp_path / "far.yaml", start=False)
        memory = {
            "CADRE_MEMORY_DIRECTORY": str(tmp_path / "memory"),
            "CADRE_MEMORY_EMBEDDINGS_URL": f"{model.url}/v1",
            "CADRE_MEMORY_EMBEDDINGS_MODEL": "m",
        }
        stack.add("memory", "cadre_memory", start=False, **memory)
        gateway = stack.open_gateway()
        cadre = commands_of(stack, tmp_path)
        done = cadre("run", "near", "Go.")
        assert (done.returncode, done.stdout) == (0, "Fine.\n"), done.stderr
        assert "defect" not in stack.logs()
        doctor = cadre("doctor")
        assert f"the model endpoint {model.url}/v1 answers" in doctor.stdout
        if variable in ("ALL_PROXY", "SSL_CERT_FILE"):
            result = gateway.finished(gateway.submit("far", "Go."))
            assert result["state"] == "error"
            assert f"{variable}=" in json.dumps(result["error"])
            ready = httpx2.get(f"{stack.services['far'].url}/readyz", trust_env=False).json()
            assert f"{variable}=" in ready["model"]
            refused = cadre("runs", CADRE_GATEWAY_URL="https://gateway.example")
            assert f"{variable}=" in refused.stderr
            assert "defect" not in refused.stderr


class Proxy(ThreadingHTTPServer):
    """An HTTP proxy that answers itself, as a model would, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answering)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        call = {"name": "final_answer", "arguments": json.dumps({"answer": "By proxy."})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        body = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_model_elsewhere_is_asked_by_the_proxy(tmp_path: Path, proxy: Proxy) -> None:
    far = "url: 'http://models.example/v1', name: m, stream: false"
    (tmp_path / "far.yaml").write_text(AGENT.format(name="far", model=far))
    with Stack(tmp_path) as stack:
        stack.environment["HTTP_PROXY"] = proxy.url
        stack.agent(tmp_path / "far.yaml", start=False)
        gateway = stack.open_gateway()
        assert gateway.answer("far", "Go.") == "By proxy."
    assert "http://models.example/v1/chat/completions" in proxy.asked


def test_a_receiver_that_no_proxy_leads_to_is_named(tmp_path: Path) -> None:
    """The tracer goes on: spans are sent once the receiver can be reached."""
    with Stack(tmp_path) as stack:
        stack.environment["ALL_PROXY"] = "socks5://127.0.0.1:9"
        far = "http://traces.example:4318"
        tracer = stack.add("tracer", "cadre_tracer", OTEL_EXPORTER_OTLP_ENDPOINT=far, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        (tmp_path / "script.yaml").write_text(SCRIPT)
        (tmp_path / "near.yaml").write_text(AGENT.format(name="near", model=""))
        stack.model(tmp_path / "script.yaml")
        stack.agent(tmp_path / "near.yaml", start=False)
        gateway = stack.open_gateway()
        assert gateway.answer("near", "Go.") == "Fine."

        def told() -> bool:
            ready = httpx2.get(f"{tracer.url}/readyz", trust_env=False)
            return ready.status_code == 200 and "does not take" in ready.json()["receiver"]

        eventually(told, what="the tracer says that its receiver takes nothing", state=tracer.log.read_text)
        assert "Traceback" not in tracer.log.read_text()
