"""Tests of what the gateway says that an agent sent to its model, next to what the model received."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from cadre.prompting.prompt_file import locate
from harness.command import Commands
from harness.patience import patience
from harness.stack import Gateway, Stack

CLERK = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Pays bills.
  tools: [pay]
  planning_interval: 2
  prompts: prompts.yaml
  model: {temperature: 0.2, seed: 7, extra_body: {top_p: 0.9}}
"""

CHECKER = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: checker}
spec:
  description: Pays bills, asked by another API.
  tools: [pay]
  model: {name: other, api: responses, stream: false}
"""

TOOLS = '''
from cadre import tool


@tool(idempotent=True)
def pay(bill: str) -> str:
    """Pay a bill.

    Args:
        bill: its name, with “quotes” and ümlauts.
    """
    return f"paid {bill}"
'''

SCRIPT = """
rules:
  - match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: done}}]}
  - match: {tools: [pay]}
    reply: {tool_calls: [{name: pay, arguments: {bill: "naïve “1”"}}]}
  - match: {}
    reply: {content: "1. Pay it. <end_plan>"}
"""


@contextmanager
def heard(url: str) -> Iterator[tuple[str, list[bytes]]]:
    """An address that passes requests on to the model at `url`, and the bodies that came there."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on(httpx2.get(f"{url}{self.path}", timeout=patience()))

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {"Content-Type": "application/json"}
            self._pass_on(httpx2.post(f"{url}{self.path}", content=bodies[-1], headers=headers, timeout=patience()))

        def _pass_on(self, answer: httpx2.Response) -> None:
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def told(gateway: Gateway, run: str) -> list[bytes]:
    """The bodies of all model calls of the run, as the gateway renders them."""
    found = []
    for name, data in gateway.events(run):
        if name == "model.called":
            called = data["event"]
            query = {"purpose": called["purpose"], "attempt": called["attempt"]}
            answer = gateway.request("GET", f"/v1/runs/{run}/steps/{called['step']}/request", params=query)
            assert answer.status_code == 200, answer.text
            request = msgspec.json.decode(answer.content)
            assert {"purpose": request["purpose"], "attempt": request["attempt"]} in request["calls"]
            found.append(msgspec.json.encode(request["body"]))
    return found


def test_what_a_model_received_is_rendered_from_the_journal(tmp_path: Path) -> None:
    for name, text in {
        "clerk.yaml": CLERK,
        "checker.yaml": CHECKER,
        "bills.py": TOOLS,
        "script.yaml": SCRIPT,
    }.items():
        (tmp_path / name).write_text(text)
    prompts = locate("tool_calling").read_text()
    (tmp_path / "prompts.yaml").write_text(prompts.replace("You settle a task", "OWN WORDS: you settle a task", 1))
    with Stack(tmp_path) as stack, heard(stack.model(tmp_path / "script.yaml").url) as (url, bodies):
        stack.environment["CADRE_MODEL_URL"] = f"{url}/v1"
        stack.agent(tmp_path / "clerk.yaml", start=False)
        stack.agent(tmp_path / "checker.yaml", start=False)
        stack.tools(tmp_path / "bills.py", start=False)
        gateway = stack.open_gateway(2)
        run = gateway.submit("clerk", "Pay the bill.")
        assert gateway.succeeded(run) == "done"
        received = list(bodies)
        assert len(received) >= 3  # a plan, and two steps
        assert b"OWN WORDS" in received[1]
        assert told(gateway, run) == received

        bodies.clear()
        other = gateway.submit("checker", "Pay the bill.")
        assert gateway.succeeded(other) == "done"
        assert told(gateway, other) == bodies
        assert b'"input":' in bodies[0]

        last = gateway.request("GET", f"/v1/runs/{run}/steps/1/request").json()
        assert (last["purpose"], last["api"], last["body"]["temperature"]) == ("act", "chat", 0.2)
        commands = Commands(tmp_path, stack.environment | {"CADRE_GATEWAY_URL": gateway.service.url})
        shown = commands("show", run, "--prompt", 1)
        assert shown.returncode == 0, shown.stderr
        assert "OWN WORDS" in shown.stdout
        assert "pay(" in shown.stdout

        for path, code in (
            ("9/request", "unknown-model-call"),
            ("1/request?purpose=dream", "unknown-model-call"),
        ):
            refused = gateway.request("GET", f"/v1/runs/{run}/steps/{path}")
            assert (refused.status_code, refused.json()["code"]) == (404, code)
        assert gateway.request("GET", f"/v1/runs/{run}/steps/x/request").status_code == 422
        assert gateway.request("GET", "/v1/runs/nothing/steps/1/request").json()["code"] == "unknown-run"
