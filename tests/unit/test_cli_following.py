"""A run that is started and followed while the gateway is away at times; what Ctrl-C does to it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cadre.errors import ExitCode
from unit.played_gateway import PROBLEM, Answer, Gateway, cadre, playing

BEGUN = {
    "seq": 1,
    "rows": [{"key": "run:r1", "run": "r1", "kind": "run", "name": "boss"}],
    "lines": [{"seq": 1, "at": 1.0, "run": "r1", "event": "run.accepted", "text": "boss: begins: go"}],
}

PROXYS: Answer = (502, "text/html", "<html>502 Bad Gateway</html>")
LATE: Answer = (504, "text/html", "<html>504 Gateway Time-out</html>")
BUSY: Answer = (503, PROBLEM, {"detail": "NATS did not answer"})


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr("cadre.client.transport._PAUSES_SECONDS", (0.01, 0.01, 0.01, 0.01))
    with playing(monkeypatch) as server:
        server.answer("POST /v1/runs", {"id": "r1", "agent": "boss", "state": "running"})
        server.answer("POST /v1/runs/r1/cancel", {"id": "r1", "state": "running"})
        server.answer("GET /v1/runs/r1", {"id": "r1", "state": "success", "output": "42"})
        server.events("GET /v1/runs/r1/events", ("end", {"run": "r1", "state": "success"}))
        yield server


def test_a_run_is_asked_for_again_under_its_key(gateway: Gateway) -> None:
    gateway.first["POST /v1/runs"] = [PROXYS, LATE, BUSY]
    result = cadre("run", "boss", "go")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "42\n")
    assert len(gateway.keys) == 4
    assert len(set(gateway.keys)) == 1
    assert gateway.keys[0]


def test_a_gateway_that_stays_away_is_unreachable(gateway: Gateway) -> None:
    gateway.answers["POST /v1/runs"] = BUSY
    result = cadre("run", "boss", "go")
    assert (result.exit_code, result.stderr) == (ExitCode.UNREACHABLE, f"cadre: {BUSY[2]['detail']}\n")
    assert len(gateway.keys) == 5


def test_what_a_gateway_refuses_is_asked_once(gateway: Gateway) -> None:
    gateway.problem("POST /v1/runs", 422, "task is empty")
    assert cadre("run", "boss", "go").exit_code == ExitCode.USAGE
    assert len(gateway.keys) == 1


def test_a_proxy_without_its_gateway_does_not_end_what_is_followed(gateway: Gateway) -> None:
    gateway.first["GET /v1/runs/r1/events"] = [PROXYS, LATE]
    result = cadre("show", "r1", "--follow")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "42\n")


# --- Ctrl-C


@pytest.fixture
def endless(gateway: Gateway) -> Gateway:
    """The run begins and does not end; its stream is taken up again and again."""
    gateway.events("GET /v1/runs/r1/events", ("rows", BEGUN))
    return gateway


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Inside, the command runs and has reported that the run has begun."""
    argv = [sys.executable, "-m", "cadre.cli.main", *words]
    with subprocess.Popen(argv, env=dict(os.environ), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "boss: begins: go" in line_of(process)
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_ctrl_c_leaves_a_run_that_one_only_looks_at(endless: Gateway) -> None:
    with started("show", "r1", "--follow") as process:
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert (process.returncode, endless.posted) == (ExitCode.DETACHED, [])
    assert printed == "cadre: run r1 goes on: `cadre show r1 --follow` looks again\n"


def test_ctrl_c_cancels_a_run_that_one_has_started_and_leaves_it_the_second_time(endless: Gateway) -> None:
    with started("run", "boss", "go") as process:
        process.send_signal(signal.SIGINT)
        assert "Ctrl-C" in line_of(process)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert process.returncode == ExitCode.DETACHED
    assert printed == "cadre: left run r1 to itself: `cadre show r1 --follow` looks again\n"
