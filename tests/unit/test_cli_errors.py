"""Tests of what the commands say and return when something is wrong, against a real HTTP server that plays the
gateway."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cadre.cli.main import group as commands
from cadre.cli.terminal.outcome import error_line, exit_code
from cadre.errors import BusUnavailable, CommandFailed, ExitCode, SpecError
from unit.played_gateway import Gateway, cadre, playing

LONG_ID = "a" * 31


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with playing(monkeypatch) as server:
        yield server


def finished(state: str, output: Any = None, error: dict[str, str] | None = None) -> dict[str, Any]:
    return {"id": "r1", "agent": "boss", "state": state, "output": output, "error": error, "children": []}


def play_run(gateway: Gateway, result: dict[str, Any]) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1", "agent": "boss", "state": "running"})
    gateway.events("GET /v1/runs/r1/events", ("end", {"run": "r1", "state": result["state"]}))
    gateway.answer("GET /v1/runs/r1", result)


def test_a_problem_is_one_line_from_its_detail(gateway: Gateway) -> None:
    gateway.problem("POST /v1/runs", 404, "no live agent is named 'bos';\nlive agents: boss")
    result = cadre("run", "bos", "hello")
    assert (result.exit_code, result.stdout) == (ExitCode.NOT_FOUND, "")
    assert "'bos'" in result.stderr


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.USAGE),
        (404, ExitCode.NOT_FOUND),
        (409, ExitCode.FAILED),
        (422, ExitCode.USAGE),
        (502, ExitCode.UNREACHABLE),
        (503, ExitCode.UNREACHABLE),
        (504, ExitCode.UNREACHABLE),
    ],
)
def test_problems_have_exit_codes(gateway: Gateway, status: int, code: ExitCode) -> None:
    gateway.problem("GET /v1/runs", status, "because")
    result = cadre("runs")
    assert (result.exit_code, result.stderr) == (code, "cadre: because\n")


def test_somebody_elses_server_is_not_taken_for_the_gateway(gateway: Gateway) -> None:
    gateway.answers["GET /v1/runs"] = (200, "text/html", "<html>hello</html>")
    result = cadre("runs")
    assert result.exit_code == ExitCode.FAILED
    assert "/v1/runs?limit=21 answered 200" in result.stderr


def test_no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_URL", "http://127.0.0.1:1")
    result = cadre("ps")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "http://127.0.0.1:1" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_answer_alone_is_on_stdout(gateway: Gateway) -> None:
    play_run(gateway, finished("success", "42"))
    result = cadre("run", "boss", "-", "--input", "n=3", "--input", "name=moon", stdin="what is it?")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "42\n")
    [request] = gateway.posted
    assert request["task"] == "what is it?"
    assert request["inputs"] == {"n": 3, "name": "moon"}


@pytest.mark.parametrize(
    ("state", "code"),
    [("error", ExitCode.FAILED), ("cancelled", ExitCode.CANCELLED), ("max_steps_error", ExitCode.LIMIT)],
)
def test_the_end_of_a_run_is_its_exit_code(gateway: Gateway, state: str, code: ExitCode) -> None:
    play_run(gateway, finished(state, {"so": "far"}, {"type": "E", "message": "why"}))
    result = cadre("run", "boss", "go")
    assert result.exit_code == code == exit_code({"state": state})
    assert json.loads(result.stdout) == {"so": "far"}
    assert result.stderr.endswith(f"cadre: run r1 ended as {state}: E: why\n")


@pytest.mark.parametrize(("model", "warns"), [("scripted", True), ("m-1", False)])
def test_answers_that_no_model_gave_are_said_to_be_such(gateway: Gateway, model: str, warns: bool) -> None:
    play_run(gateway, finished("success", "42"))
    gateway.events(
        "GET /v1/runs/r1/events",
        (
            "rows",
            {"seq": 1, "rows": [{"key": "run:r1", "run": "r1", "kind": "run", "facts": {"model": model}}]},
        ),
        ("end", {"run": "r1", "state": "success"}),
    )
    result = cadre("run", "boss", "go")
    assert result.stdout == "42\n"
    assert ("not an AI" in result.stderr) is warns


def test_an_answer_of_no_words_prints_no_line(gateway: Gateway) -> None:
    play_run(gateway, finished("max_steps_error", ""))
    assert cadre("run", "boss", "go").stdout == ""


def test_a_full_disk_is_no_defect() -> None:
    text, code = error_line(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert code == ExitCode.FAILED
    assert "OSError" not in text


def test_a_failed_run_as_json_is_one_object(gateway: Gateway) -> None:
    play_run(gateway, finished("error", None, {"type": "E", "message": "why"}))
    result = cadre("run", "boss", "go", "-o", "json")
    assert result.exit_code == ExitCode.FAILED
    assert json.loads(result.stdout)["error"] == {"type": "E", "message": "why"}


def test_a_run_that_outlasts_the_timeout_goes_on(gateway: Gateway) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1"})
    gateway.events("GET /v1/runs/r1/events")
    gateway.answer("GET /v1/runs/r1", {"id": "r1", "state": "running"})
    for more, printed in (([], ""), (["-o", "json"], '{"id": "r1", "state": "running"}\n')):
        result = cadre("run", "boss", "go", "--timeout", "0.2", *more)
        assert (result.exit_code, result.stdout) == (ExitCode.TIMEOUT, printed)
        assert "r1" in result.stderr
        assert gateway.posted[-1] == {"agent": "boss", "task": "go"}


def test_detach_prints_the_id(gateway: Gateway) -> None:
    gateway.answer("POST /v1/runs", {"id": "r1"})
    assert cadre("run", "boss", "go", "--detach").stdout == "r1\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "boss"], "the task"),
        (["run", "boss", "-"], "the task"),
        (["run", "boss", "go", "--reset"], "--reset needs --session"),
        (["run", "boss", "go", "--input", "novalue"], "write NAME=VALUE"),
        (["run", "boss", "go", "--image", "/nowhere/a.png"], "--image /nowhere/a.png: No such file"),
        (["run", "boss", "go", "--input", "k=1", "--input", "k=2"], "--input k"),
        (["run", "boss", "broken \udcff"], "UTF-8 text (at character 8)"),
        (["run", "boss", "go", "--max-steps", "0"], "'--max-steps'"),
        (["show", "../etc"], "'../etc'"),
        (
            ["run", "boss", "go", "--arg", "n=3"],
            "unknown option --arg of `cadre run`; known options: --input, --image",
        ),
        (
            ["fork", "r1", "--at", "1", "--arg", "n=3"],
            "unknown option --arg of `cadre fork`; known options: --at, --task, --input",
        ),
        (["nosuch"], "No such command 'nosuch'"),
        (["up", "--run", "--demo", "there"], "not both"),
    ],
)
def test_usage_errors_are_one_line(gateway: Gateway, words: list[str], message: str) -> None:
    result = cadre(*words)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("cadre: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert gateway.posted == []


def test_an_image_without_an_images_name(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    result = cadre("run", "boss", "go", "--image", str(tmp_path / "notes.txt"))
    assert result.exit_code == ExitCode.USAGE


def test_a_unique_beginning_of_an_id_is_enough(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": LONG_ID + "1"}, {"id": "b" * 32}], "next": None})
    for beginning, id in (("aaa", f"{LONG_ID}1"), ("aa_2_0", f"{LONG_ID}1_2_0")):
        gateway.answer(f"POST /v1/runs/{id}/cancel", {"id": id, "state": "cancelled"})
        assert cadre("cancel", beginning).stdout == f"{id} cancelled\n"
    gateway.answer("GET /v1/runs", {"runs": [{"id": LONG_ID + "1"}, {"id": LONG_ID + "2"}], "next": None})
    result = cadre("show", "aaa")
    assert result.exit_code == ExitCode.USAGE
    assert f"{LONG_ID}1, {LONG_ID}2" in result.stderr


def test_the_answer_is_told_once_even_with_the_memory(gateway: Gateway) -> None:
    memory = [{"type": "task", "task": "go"}, {"type": "answer", "output": "the answer is 42"}]
    gateway.answer("GET /v1/runs/r1", {**finished("success", "the answer is 42"), "memory": memory})
    shown = cadre("show", "r1", "--full").stdout
    assert "memory\n  task\n    go\n" in shown
    assert shown.count("the answer is 42") == 1


def test_last_of_no_runs(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [], "next": None})
    assert cadre("show", "@last").exit_code == ExitCode.NOT_FOUND


def test_a_defect_shows_its_traceback_only_when_asked(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway.answer("GET /v1/runs", {"unexpected": True})
    quiet = cadre("runs")
    assert quiet.exit_code == ExitCode.FAILED
    assert quiet.stderr == "cadre: KeyError: 'runs' (a defect; CADRE_DEBUG=1 shows where)\n"
    monkeypatch.setenv("CADRE_DEBUG", "1")
    assert "Traceback" in cadre("runs").stderr


def test_logs_of_nothing(tmp_path: Path) -> None:
    result = cadre("logs", "--data", str(tmp_path))
    assert result.exit_code == ExitCode.NOT_FOUND
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandFailed("x", ExitCode.LIMIT), ExitCode.LIMIT),
        (BusUnavailable("connecting", "refused"), ExitCode.UNREACHABLE),
        (SpecError("a.yaml: wrong"), ExitCode.USAGE),
        (click.UsageError("wrong"), ExitCode.USAGE),
        (click.ClickException("wrong"), ExitCode.FAILED),
        (ZeroDivisionError("division by zero"), ExitCode.FAILED),
    ],
)
def test_every_error_has_a_code(error: Exception, code: ExitCode) -> None:
    assert error_line(error)[1] == code


def test_a_path_that_leads_out_of_the_workspace_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    gateway.answer("GET /v1/runs/r1", {"id": "r1"})
    (tmp_path / "f").write_text("x")
    for arguments in (("r1", "../../r2/files/f"), ("r1", "a/../f", "--put", str(tmp_path / "f"))):
        result = cadre("files", *arguments)
        assert result.exit_code == ExitCode.USAGE
        assert arguments[1] in result.stderr


# --- what cannot be sent or printed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("n=1e999", "--input n: 1e999 "),
        ("n=" + "[" * 990 + "]" * 990, "--input n "),
        ("n=" + '{"a":' * 100_000, "--input n "),
    ],
)
def test_json_that_cannot_be_sent_is_one_line(gateway: Gateway, given: str, message: str) -> None:
    result = cadre("run", "boss", "go", "--input", given)
    assert (result.exit_code, gateway.posted) == (ExitCode.USAGE, [])
    assert result.stderr.startswith(f"cadre: {message}")
    assert result.stderr.count("\n") == 1


def test_what_is_nested_deeply_enough_is_sent(gateway: Gateway) -> None:
    play_run(gateway, finished("success", "42"))
    assert cadre("run", "boss", "go", "--input", "n=" + "[" * 800 + "]" * 800).exit_code == ExitCode.OK


@pytest.mark.parametrize("url", ["http://[::1", "http://gateway:port", "http://[gateway]"])
@pytest.mark.parametrize("words", [["ps"], ["run", "boss", "go"]])
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, url: str, words: list[str]) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_URL", url)
    result = cadre(*words)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith(f"cadre: CADRE_GATEWAY_URL={url}: ")


def test_a_task_that_is_no_text(gateway: Gateway) -> None:
    result = cadre("run", "boss", stdin="Grüße".encode("latin-1"))
    assert (result.exit_code, gateway.posted) == (ExitCode.USAGE, [])
    assert result.stderr.startswith("cadre: ")
    assert "UTF-8" in result.stderr


def test_an_answer_that_the_terminal_has_no_letters_for(gateway: Gateway) -> None:
    play_run(gateway, finished("success", "Ответ: 42"))
    command = [sys.executable, "-m", "cadre.cli.main", "run", "boss", "go"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.FAILED
    line = "cadre: the output has characters that latin-1 lacks: set PYTHONIOENCODING=utf-8"
    assert done.stderr.splitlines()[-1] == line


def test_two_files_of_one_name(gateway: Gateway, tmp_path: Path) -> None:
    files = [tmp_path / year / "sales.csv" for year in ("2023", "2024")]
    for file in files:
        file.parent.mkdir()
        file.write_text("1")
    result = cadre("run", "boss", "go", *(word for file in files for word in ("--file", str(file))))
    assert (result.exit_code, gateway.posted) == (ExitCode.USAGE, [])
    assert all(str(file) in result.stderr for file in files)


@pytest.mark.parametrize(
    "group", ["runs", "schedule", "trigger", "budget", "notice", "keys", "tenant", "dead", "memory"]
)
def test_every_group_lists_and_removes_by_the_same_words_or_the_shells(group: str) -> None:
    runner = CliRunner()
    listed = runner.invoke(commands, [group, "--help"]).stdout
    names = {line.split()[0] for line in listed.partition("Commands:")[2].splitlines() if line.strip()}
    assert not names & {"ls", "rm"}
    assert names & {"list", "remove"}
    for name, short in (("list", "ls"), ("remove", "rm")):
        if name in names:
            assert runner.invoke(commands, [group, short, "--help"]).exit_code == 0, f"{group} {short}"


def test_rows_of_another_version_are_no_defect(gateway: Gateway) -> None:
    play_run(gateway, finished("success", "42"))
    row = {"key": "run:r1", "run": "r1", "kind": "run", "state": "levitating"}
    gateway.events("GET /v1/runs/r1/events", ("rows", {"seq": 1, "rows": [row]}))
    result = cadre("run", "boss", "go")
    assert result.exit_code == ExitCode.FAILED
    assert "Traceback" not in result.stderr
