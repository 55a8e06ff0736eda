"""The shipped team as its users start it, traced into a backend, and a real browser to look at that."""

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
import pytest
import yaml
from playwright.sync_api import Browser, Page, expect, sync_playwright

from harness.nats_server import free_port
from harness.patience import eventually, patience

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "observe"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
CACHED, REASONED = 321, 45
"""Tokens that one answer of the demo says were in a cache, and were written beside what it says."""


_SHOWN_WITHIN = 180_000
"""Milliseconds."""


class Demo(NamedTuple):
    """The demo's run in a backend."""

    backend: str
    """Address of the backend."""
    trace: str


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH; what it shows is NOT tested")
    expect.set_options(timeout=_SHOWN_WITHIN)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--disable-quic", "--no-sandbox"])


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose last state is kept as a picture in build/observe."""
    context = browser.new_context(viewport={"width": 1700, "height": 1500})
    context.set_default_timeout(_SHOWN_WITHIN)
    page = context.new_page()
    yield page
    page.screenshot(path=PICTURES / f"{request.node.name}.png")
    context.close()


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
