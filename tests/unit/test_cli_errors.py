"""What the commands say and return when something is wrong, against a real HTTP server that plays the gateway."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cadre.cli.exits import Code, Failure, explain, of_run
from cadre.cli.main import group
from cadre.errors import BusUnavailable, SpecError

PROBLEM = "application/problem+json"
LONG_ID = "a" * 31


class Gateway(ThreadingHTTPServer):
    """Answers by method and path (without its query); anything else is a 404 problem."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str, Any]] = {}
        self.posted: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def problem(self, request: str, status: int, detail: str) -> None:
        self.answers[request] = (status, PROBLEM, {"title": "no", "status": status, "detail": detail})

    def answer(self, request: str, content: Any) -> None:
        self.answers[request] = (200, "application/json", content)

    def events(self, request: str, *events: tuple[str, dict[str, Any]]) -> None:
        text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        self.answers[request] = (200, "text/event-stream", text)


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self.server.posted.append(json.loads(self.rfile.read(length) or b"{}"))
        self._answer("POST")

    def _answer(self, method: str) -> None:
        missing = (404, PROBLEM, {"detail": f"nothing at {self.path}"})
        status, kind, content = self.server.answers.get(f"{method} {self.path.partition('?')[0]}", missing)
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """The test's output is not the place for an access log."""


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("CADRE_GATEWAY_URL", server.url)
        monkeypatch.delenv("CADRE_DEBUG", raising=False)
        yield server
        server.shutdown()
        thread.join()


def cadre(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(group, words, input=stdin, prog_name="cadre")


def finished(state: str, output: Any = None, error: dict[str, str] | None = None) -> dict[str, Any]:
    return {"id": "r1", "agent": "boss", "state": state, "output": output, "error": error, "children": []}


def play_run(gateway: Gateway, result: dict[str, Any]) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1", "agent": "boss", "state": "running"})
    gateway.events("GET /v1/runs/r1/events", ("end", {"run": "r1", "state": result["state"]}))
    gateway.answer("GET /v1/runs/r1", result)


def test_a_problem_is_one_line_from_its_detail(gateway: Gateway) -> None:
    gateway.problem("POST /v1/runs", 404, "no live agent is named 'bos';\nlive agents: boss")
    result = cadre("run", "bos", "hello")
    assert (result.exit_code, result.stdout) == (Code.NOT_FOUND, "")
    assert result.stderr == "cadre: no live agent is named 'bos'; live agents: boss\n"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.USAGE),
        (404, Code.NOT_FOUND),
        (409, Code.FAILED),
        (422, Code.USAGE),
        (503, Code.UNREACHABLE),
    ],
)
def test_problems_have_exit_codes(gateway: Gateway, status: int, code: Code) -> None:
    gateway.problem("GET /v1/runs", status, "because")
    result = cadre("runs")
    assert (result.exit_code, result.stderr) == (code, "cadre: because\n")


def test_somebody_elses_server_is_not_taken_for_the_gateway(gateway: Gateway) -> None:
    gateway.answers["GET /v1/runs"] = (200, "text/html", "<html>hello</html>")
    result = cadre("runs")
    assert result.exit_code == Code.FAILED
    assert "which is not what Cadre's gateway says" in result.stderr


def test_no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_URL", "http://127.0.0.1:1")
    result = cadre("ps")
    assert result.exit_code == Code.UNREACHABLE
    assert result.stderr.startswith("cadre: no gateway answers at http://127.0.0.1:1 ")
    assert result.stderr.count("\n") == 1


def test_the_answer_alone_is_on_stdout(gateway: Gateway) -> None:
    play_run(gateway, finished("success", "42"))
    result = cadre("run", "boss", "-", "--arg", "n=3", "--arg", "name=moon", stdin="what is it?")
    assert (result.exit_code, result.stdout) == (Code.OK, "42\n")
    [request] = gateway.posted
    assert request["task"] == "what is it?"
    assert request["additional_args"] == {"n": 3, "name": "moon"}


@pytest.mark.parametrize(
    ("state", "code"),
    [("error", Code.FAILED), ("cancelled", Code.CANCELLED), ("max_steps_error", Code.LIMIT)],
)
def test_the_end_of_a_run_is_its_exit_code(gateway: Gateway, state: str, code: Code) -> None:
    play_run(gateway, finished(state, {"so": "far"}, {"type": "E", "message": "why"}))
    result = cadre("run", "boss", "go")
    assert result.exit_code == code == of_run({"state": state})
    assert json.loads(result.stdout) == {"so": "far"}
    assert result.stderr.endswith(f"cadre: run r1 ended as {state}: E: why\n")


@pytest.mark.parametrize(("model", "said"), [("scripted", True), ("m-1", False)])
def test_answers_that_no_model_gave_are_said_to_be_such(gateway: Gateway, model: str, said: bool) -> None:
    play_run(gateway, finished("success", "42"))
    gateway.events(
        "GET /v1/runs/r1/events",
        ("run.accepted", {"run": "r1", "agent": "boss", "at": 1.0, "event": {"task": {}, "spec": {}}}),
        ("model.answered", {"run": "r1", "agent": "boss", "at": 2.0, "event": {"step": 1, "model": model}}),
        ("end", {"run": "r1", "state": "success"}),
    )
    result = cadre("run", "boss", "go")
    assert result.stdout == "42\n"
    assert ("not an AI" in result.stderr) is said


def test_an_answer_of_no_words_prints_no_line(gateway: Gateway) -> None:
    play_run(gateway, finished("max_steps_error", ""))
    assert cadre("run", "boss", "go").stdout == ""


def test_a_full_disk_is_no_defect() -> None:
    assert explain(OSError(errno.ENOSPC, "No space left on device")) == (
        "the output cannot be written: no space left on the device",
        Code.FAILED,
    )


def test_a_failed_run_as_json_is_one_object(gateway: Gateway) -> None:
    play_run(gateway, finished("error", None, {"type": "E", "message": "why"}))
    result = cadre("run", "boss", "go", "-o", "json")
    assert result.exit_code == Code.FAILED
    assert json.loads(result.stdout)["error"] == {"type": "E", "message": "why"}


def test_a_run_that_outlasts_its_timeout_is_cancelled(gateway: Gateway) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1"})
    gateway.answer("POST /v1/runs/r1/cancel", {"id": "r1", "state": "running"})
    gateway.events("GET /v1/runs/r1/events")
    result = cadre("run", "boss", "go", "--timeout", "0.2")
    assert result.exit_code == Code.TIMEOUT
    assert gateway.posted[1] == {"reason": "not finished within 0.2 s"}


def test_detach_prints_the_id(gateway: Gateway) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1"})
    assert cadre("run", "boss", "go", "--detach").stdout == "r1\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "boss"], "the task is empty"),
        (["run", "boss", "-"], "the task is empty"),
        (["run", "boss", "go", "--continue"], "--continue needs --session"),
        (["run", "boss", "go", "--arg", "novalue"], "write KEY=VALUE"),
        (["run", "boss", "go", "--image", "/nowhere/a.png"], "--image /nowhere/a.png: No such file"),
        (["run", "boss", "go", "--max-steps", "0"], "'--max-steps'"),
        (["show", "../etc"], "is not a run id"),
        (["nosuch"], "No such command 'nosuch'"),
        (["up", "--run", "--demo", "there"], "not both"),
    ],
)
def test_usage_errors_are_one_line(gateway: Gateway, words: list[str], told: str) -> None:
    result = cadre(*words)
    assert result.exit_code == Code.USAGE
    assert result.stderr.startswith("cadre: ")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert gateway.posted == []


def test_an_image_without_an_images_name(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    result = cadre("run", "boss", "go", "--image", str(tmp_path / "notes.txt"))
    assert result.exit_code == Code.USAGE


def test_a_unique_beginning_of_an_id_is_enough(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": LONG_ID + "1"}, {"id": "b" * 32}], "next": None})
    gateway.answer(f"POST /v1/runs/{LONG_ID}1/cancel", {"id": LONG_ID + "1", "state": "cancelled"})
    assert cadre("cancel", "aaa").stdout == f"{LONG_ID}1 cancelled\n"


def test_a_child_run_is_named_by_the_beginning_of_its_root(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": LONG_ID + "1"}], "next": None})
    gateway.answer(f"POST /v1/runs/{LONG_ID}1_2_0/cancel", {"id": LONG_ID + "1_2_0", "state": "cancelled"})
    assert cadre("cancel", "aa_2_0").exit_code == Code.OK


def test_a_beginning_of_several_ids_is_refused(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": LONG_ID + "1"}, {"id": LONG_ID + "2"}], "next": None})
    result = cadre("show", "aaa")
    assert result.exit_code == Code.USAGE
    assert f"{LONG_ID}1, {LONG_ID}2" in result.stderr


def test_the_answer_is_told_once_even_with_the_memory(gateway: Gateway) -> None:
    memory = [{"type": "task", "task": "go"}, {"type": "answer", "output": "the answer is 42"}]
    gateway.answer("GET /v1/runs/r1", {**finished("success", "the answer is 42"), "memory": memory})
    shown = cadre("show", "r1", "--full").stdout
    assert "memory\n  task\n    go\n" in shown
    assert shown.count("the answer is 42") == 1


def test_last_of_no_runs(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [], "next": None})
    assert cadre("show", "@last").exit_code == Code.NOT_FOUND


def test_a_defect_shows_its_traceback_only_when_asked(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.answer("GET /v1/runs", {"unexpected": True})
    quiet = cadre("runs")
    assert quiet.exit_code == Code.FAILED
    assert quiet.stderr == "cadre: KeyError: 'runs' (a defect; CADRE_DEBUG=1 shows where)\n"
    monkeypatch.setenv("CADRE_DEBUG", "1")
    assert "Traceback" in cadre("runs").stderr


def test_logs_of_nothing(tmp_path: Path) -> None:
    result = cadre("logs", "--data", str(tmp_path))
    assert result.exit_code == Code.NOT_FOUND
    assert "there are no logs in" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failure("x", Code.LIMIT), Code.LIMIT),
        (BusUnavailable("connecting", "refused"), Code.UNREACHABLE),
        (SpecError("a.yaml: wrong"), Code.USAGE),
        (click.UsageError("wrong"), Code.USAGE),
        (click.ClickException("wrong"), Code.FAILED),
        (ZeroDivisionError("division by zero"), Code.FAILED),
    ],
)
def test_every_error_has_a_code(error: Exception, code: Code) -> None:
    assert explain(error)[1] == code


def test_a_path_that_leads_out_of_the_workspace_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    gateway.answer("GET /v1/runs/r1", {"id": "r1"})
    (tmp_path / "f").write_text("x")
    for arguments in (("r1", "../../r2/files/f"), ("r1", "a/../f", "--put", str(tmp_path / "f"))):
        result = cadre("files", *arguments)
        assert result.exit_code == Code.USAGE
        assert "leads out of the workspace" in result.stderr
