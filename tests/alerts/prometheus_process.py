"""A real Prometheus, which scrapes the services of a stack under the shipped rules with their times cut short."""

import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import yaml

from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.stack import Stack

_WITHOUT_METRICS = {"model"}


class Prometheus:
    """Asks one over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        data = self._get("/api/v1/alerts")
        return {one["labels"]["alertname"] for one in data["alerts"] if one["state"] == "firing"}

    def fires(self, alert: str) -> None:
        """Waits until the alert does."""
        eventually(lambda: alert in self.firing(), what=f"{alert} fires", state=self.firing)

    def over(self, *alerts: str) -> None:
        """Waits until none of the alerts fires any more."""
        eventually(lambda: not set(alerts) & self.firing(), what=f"{alerts} are over", state=self.firing)

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


@contextlib.contextmanager
def scraping(stack: Stack, rules: str, every: str = "1s") -> Iterator[Prometheus]:
    """One that has scraped every service of the stack. A scrape may take as long as `every`."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    folder = stack.folder / "prometheus"
    folder.mkdir()
    (folder / "alerts.yml").write_text(_cut_short(rules))
    targets = [
        {"targets": [f"127.0.0.1:{service.port}"], "labels": {"service": service.name}}
        for service in stack.services.values()
        if service.name not in _WITHOUT_METRICS
    ]
    configuration = {
        "global": {"scrape_interval": every, "evaluation_interval": "1s"},
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


def _cut_short(rules: str) -> str:
    """The rules with half a minute for each window, three seconds for each `for`, and what takes an hour or thousands
    of records at once."""
    short = re.sub(r"\[\d+[mh]\]", "[30s]", re.sub(r"for: \d+m", "for: 3s", rules))
    return short.replace("> 3600", "> 2").replace("> 5000", "> 20")
