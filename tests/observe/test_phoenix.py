"""The shipped team's demo, traced into a real Phoenix, is found there as one tree by a real browser."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from harness.nats_server import free_port
from harness.patience import eventually, patience

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "phoenix-venv" / "bin" / "python"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH")
    return found


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("phoenix")
    port, grpc = free_port(), free_port()
    environment = {
        **os.environ,
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PYTHON, ROOT / "deploy" / "phoenix" / "serve.py"], env=environment, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx2.get(f"{url}/healthz", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    try:
        eventually(answers, what="Phoenix answers", state=log.read_text)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=patience())


@pytest.fixture(scope="module")
def gateway(phoenix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the shipped team, started as its users start it."""
    folder, port = tmp_path_factory.mktemp("up"), free_port()
    argv = [sys.executable, "-m", "cadre.cli.main", "up", str(ROOT / "teams" / "apollo"), "--port", str(port)]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{phoenix}/v1/traces"}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"

    def complete() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            answer = httpx2.get(f"{url}/v1/agents", timeout=5)
        except httpx2.HTTPError:
            return False
        agents = answer.json()["agents"] if answer.status_code == 200 else []
        return {agent["name"] for agent in agents} >= {"manager", "researcher", "analyst", "checker"}

    try:
        eventually(complete, what="the team is at work", state=lambda: log.read_text()[-3000:])
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=patience())


@pytest.fixture(scope="module")
def spans(phoenix: str, gateway: str) -> list[dict[str, Any]]:
    """Of the demo's run, as Phoenix has them."""
    demo = yaml.safe_load((ROOT / "teams" / "apollo" / "team.yaml").read_text())["spec"]["demo"]
    answer = httpx2.post(
        f"{gateway}/v1/runs", json={"agent": demo["agent"], "task": demo["task"]}, timeout=patience()
    )
    assert answer.status_code == 202, answer.text
    trace = answer.headers["x-trace-id"]
    found: list[dict[str, Any]] = []

    def there() -> bool:
        answer = httpx2.get(
            f"{phoenix}/v1/projects/default/spans", params={"limit": 1000}, timeout=patience()
        )
        everything = answer.json()["data"] if answer.status_code == 200 else []
        found[:] = [span for span in everything if span["context"]["trace_id"] == trace]
        return any(span["name"] == "invoke_workflow manager" for span in found)

    eventually(there, what="Phoenix has the run's root", state=lambda: [s["name"] for s in found])
    return found


def test_it_is_one_tree_with_kinds_and_tokens(spans: list[dict[str, Any]]) -> None:
    ids = {span["context"]["span_id"] for span in spans}
    assert [span["name"] for span in spans if span["parent_id"] not in ids] == ["invoke_workflow manager"]
    kinds = {span["name"].split()[0]: span["span_kind"] for span in spans if span["parent_id"]}
    assert (kinds["chat"], kinds["execute_tool"], kinds["step"]) == ("LLM", "TOOL", "CHAIN")
    chats = [span for span in spans if span["span_kind"] == "LLM"]
    assert chats
    assert all(chat["attributes"]["llm.token_count.total"] > 0 for chat in chats)


def test_a_browser_shows_the_tree(
    phoenix: str, spans: list[dict[str, Any]], browser: str, tmp_path: Path
) -> None:
    trace = spans[0]["context"]["trace_id"]
    page = subprocess.run(
        [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}",
            "--window-size=1600,2400",
            "--virtual-time-budget=60000",
            "--dump-dom",
            f"{phoenix}/redirects/traces/{trace}",
        ],
        capture_output=True,
        text=True,
        timeout=patience(300),
        check=False,
    ).stdout
    text = re.sub(r"<[^>]+>", "\n", page)
    for name in ("invoke_workflow manager", "invoke_agent researcher", "plan manager", "chat scripted"):
        assert name in text, f"{name} is not on the page"


def test_nobody_else_can_reach_it(phoenix: str) -> None:
    """Both ports are bound to loopback: what the kernel says, in hex and back to front."""
    ports = {int(phoenix.rpartition(":")[2])}
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    ours = [one for one in listening if int(one.rpartition(":")[2], 16) in ports]
    assert ours
    assert all(one.partition(":")[0].endswith("0100007F") for one in ours)
