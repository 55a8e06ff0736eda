"""The shipped alerts in a real Prometheus, each set off by its own fault; and what the dashboard shows meanwhile.

The rules are the shipped ones with their times cut short: a window of a quarter of an hour is half a minute here.
"""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml

from harness.nats_server import free_port
from harness.otlp_receiver import OtlpReceiver
from harness.patience import eventually, patience
from harness.people import decide, waiting
from harness.stack import Gateway, Stack

DEPLOY = Path(__file__).parents[2] / "deploy"
TEAM = Path(__file__).parents[1] / "e2e" / "traced"

NOTHING_THERE = {
    "Memory: calls per minute": "no memory service is in this team",
    "Memory: call duration, p95": "no memory service is in this team",
    "Sandbox: interpreters": "no sandbox is in this team",
    "Sandbox: what code met, per minute": "no sandbox is in this team",
    "Tool calls that fail": "no tool fails",
    "Model calls that fail": "no model call fails",
    "From a point to its trace": "the collector makes these from spans",
}
"""Panels without data, and why."""

pytestmark = pytest.mark.timeout(900)


class Prometheus:
    """A real one, which scrapes the services of a stack."""

    def __init__(self, url: str) -> None:
        self._url = url

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        data = self._get("/api/v1/alerts")
        return {one["labels"]["alertname"] for one in data["alerts"] if one["state"] == "firing"}

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        found: list[dict[str, Any]] = self._get("/api/v1/query", query=expression)["result"]
        return found

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self._url}/-/ready", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        answer = httpx2.get(f"{self._url}{path}", params=query, timeout=patience())
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with OtlpReceiver() as receiver, Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
        prices = stack.folder / "prices.yaml"
        prices.write_text("scripted: {input: 1000, output: 1000}\n")
        stack.environment["CADRE_PRICES"] = str(prices)
        stack.model(TEAM / "script.yaml")
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    for name in ("boss", "worker", "helper"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    stack.add("tracer", "cadre_tracer", start=False)
    gateway = stack.gateway(start=False)
    stack.start_all()
    gateway.wait_offered(3)
    return gateway


@pytest.fixture(scope="module")
def prometheus(stack: Stack, gateway: Gateway) -> Iterator[Prometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    folder = stack.folder / "prometheus"
    folder.mkdir()
    (folder / "alerts.yml").write_text(cut_short((DEPLOY / "prometheus/alerts.yml").read_text()))
    targets = [
        {"targets": [f"127.0.0.1:{service.port}"], "labels": {"service": service.name}}
        for service in stack.services.values()
        if service.name != "model"
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "cadre", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"127.0.0.1:{free_port()}"
    argv = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={url}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
    try:
        one = Prometheus(f"http://{url}")
        eventually(one.is_ready, what="Prometheus is ready")
        eventually(lambda: len(one.query('up{job="cadre"} == 1')) == len(targets), what="all are scraped")
        yield one
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=patience())


def cut_short(rules: str) -> str:
    """The rules with half a minute for each window, and three seconds for each `for`."""
    return re.sub(r"\[\d+[mh]\]", "[30s]", re.sub(r"for: \d+m", "for: 3s", rules))


def fires(prometheus: Prometheus, alert: str) -> None:
    eventually(lambda: alert in prometheus.firing(), what=f"{alert} fires", state=prometheus.firing)


def test_nothing_fires_while_all_is_well(prometheus: Prometheus, gateway: Gateway) -> None:
    gateway.finished(gateway.submit("helper", "say hello"))
    eventually(
        lambda: bool(prometheus.query('cadre_runs_finished_total{cadre_run_state="success"} > 0')),
        what="the run is counted",
    )
    assert prometheus.firing() == set()


def test_every_panel_shows_something(prometheus: Prometheus, gateway: Gateway, tmp_path: Path) -> None:
    held = gateway.submit("boss", f"delegate: use refund {tmp_path / 'mark'} 0.1")
    (call,) = waiting(gateway, held)
    assert decide(gateway, call["call"], "approve").status_code in (200, 202)
    gateway.finished(held)
    held = gateway.submit("boss", f"delegate: use refund {tmp_path / 'mark'} 0.1")
    waiting(gateway, held)
    gateway.finished(gateway.submit("boss", "delegate: think 1"))
    panels = msgspec.json.decode((DEPLOY / "grafana/dashboards/cadre.json").read_bytes())["panels"]

    def without_data() -> set[str]:
        return {
            panel["title"]
            for panel in panels
            for target in panel.get("targets", [])
            if not prometheus.query(
                re.sub(r"\[\d+h\]", "[1m]", target["expr"])
                .replace("$__rate_interval", "1m")
                .replace("$agent", ".*")
            )
        }

    eventually(lambda: without_data() <= NOTHING_THERE.keys(), what="panels show data", state=without_data)
    gateway.request("POST", f"/v1/runs/{held}/cancel")
    gateway.finished(held)


def test_a_crash_loop_is_told(prometheus: Prometheus, stack: Stack, gateway: Gateway) -> None:
    """Each worker counts one loss at most before it dies: nobody who reads workers alone sees anything grow."""
    run = gateway.submit("boss", "delegate: think 3")
    gateway.wait_for(run, "model.called", agent="worker")
    for attempt in (2, 3):
        stack.services["worker"].kill()
        stack.services["worker"].start()
        gateway.wait_for(run, "model.called", agent="worker", attempt=attempt)
    fires(prometheus, "CadreWorkersDie")
    gateway.finished(run)


def test_a_service_that_is_gone_is_told(prometheus: Prometheus, stack: Stack) -> None:
    stack.services["helper"].kill()
    fires(prometheus, "CadreServiceDown")


def test_a_queue_that_nobody_serves_is_told(prometheus: Prometheus, stack: Stack, gateway: Gateway) -> None:
    runs = [gateway.submit("helper", f"say {n}") for n in range(110)]
    fires(prometheus, "CadreQueueGrows")
    stack.services["helper"].start()
    for run in runs:
        gateway.finished(run)
    eventually(lambda: not {"CadreQueueGrows", "CadreServiceDown"} & prometheus.firing(), what="it is over")


def test_a_dead_endpoint_is_told(prometheus: Prometheus, stack: Stack, gateway: Gateway) -> None:
    stack.services["model"].kill()
    run = gateway.submit("helper", "say nothing")
    fires(prometheus, "CadreModelFails")
    stack.services["model"].start()
    assert gateway.finished(run)["state"] == "success"


def test_runs_that_fail_are_told(prometheus: Prometheus, gateway: Gateway) -> None:
    for n in range(5):
        run = gateway.submit("worker", f"think {n}", deadline=0.5)
        assert gateway.finished(run)["state"] == "error"
    fires(prometheus, "CadreRunsFail")
