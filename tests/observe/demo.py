"""The shipped team as its users start it, traced into a backend."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2
import yaml

from harness.nats_server import free_port
from harness.patience import eventually, patience

ROOT = Path(__file__).parents[2]
CACHED, REASONED = 321, 45
"""Tokens that one answer of the demo says were in a cache, and were written beside what it says."""


class Demo(NamedTuple):
    """The demo's run in a backend."""

    backend: str
    """Address of the backend."""
    trace: str


@contextlib.contextmanager
def answering(argv: Sequence[str | Path], health: str, folder: Path, **environment: str) -> Iterator[None]:
    """A program that answers at an address while the context lasts."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=output)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(health, timeout=2).status_code == 200
        return False

    try:
        eventually(answers, what=f"{health} answers", state=log.read_text)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=patience())


def run_demo(folder: Path, receiver: str, headers: str, arrived: Callable[[str], bool]) -> str:
    """Starts the team and gives it its demo; returns the trace's id once the backend has all of it."""
    team = folder / "team"
    shutil.copytree(ROOT / "teams" / "apollo", team)
    script = yaml.safe_load((team / "script.yaml").read_text())
    (asked,) = [rule for rule in script["rules"] if rule["name"] == "manager: ask all members"]
    asked["reply"] |= {"cached_tokens": CACHED, "reasoning_tokens": REASONED}
    (team / "script.yaml").write_text(yaml.safe_dump(script, allow_unicode=True, sort_keys=False))
    demo = yaml.safe_load((team / "team.yaml").read_text())["spec"]["demo"]
    url = f"http://127.0.0.1:{free_port()}"
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "cadre.cli.main",
        "up",
        team,
        "--port",
        url.rpartition(":")[2],
    ]
    settings = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": headers,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "30",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }

    def complete() -> bool:
        answer = httpx2.get(f"{url}/v1/agents", timeout=patience())
        if answer.status_code == 503:
            return False  # it is healthy before it is ready
        agents = {agent["name"] for agent in answer.json()["agents"]}
        return agents >= {"manager", "researcher", "analyst", "statistician"}

    with answering(argv, f"{url}/healthz", folder, **settings):
        eventually(complete, what="the team is at work")
        asked = httpx2.post(f"{url}/v1/runs", json={"agent": demo["agent"], "task": demo["task"]}, timeout=patience())
        assert asked.status_code == 202, asked.text
        trace = asked.headers["x-trace-id"]
        eventually(lambda: arrived(trace), what="the backend has the run's root")
    return trace
