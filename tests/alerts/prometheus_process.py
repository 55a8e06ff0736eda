"""Two real Prometheus under the shipped rules with their times cut short: one scrapes the services of a stack, the
other has what these send to the Collector."""

import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.stack import Stack
from observability.programs import ROOT, Collector

RULES = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
SHIPPED = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())

_WITHOUT_METRICS = {"model"}


class Prometheus:
    """Asks one over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        data = self._get("/api/v1/alerts")
        return {one["labels"]["alertname"] for one in data["alerts"] if one["state"] == "firing"}

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
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


class Watchers:
    """The Prometheus that scrapes, and the one that has what is sent: both must see the same."""

    def __init__(self, scraping: Prometheus, sent: Prometheus) -> None:
        self.scraping = scraping
        self.sent = sent
        self.ways = {"scraped": scraping, "sent": sent}

    def fires(self, alert: str) -> None:
        """Wait until the alert fires in both."""
        eventually(
            lambda: all(alert in one.firing() for one in self.ways.values()),
            what=f"{alert} fires both ways",
            state=self.firing,
        )

    def over(self, *alerts: str) -> None:
        """Wait until none of the alerts fires any more."""
        eventually(
            lambda: not any(set(alerts) & one.firing() for one in self.ways.values()),
            what=f"{alerts} are over",
            state=self.firing,
        )

    def firing(self) -> dict[str, set[str]]:
        """Return what fires now, by the way in which the figures come."""
        return {way: one.firing() for way, one in self.ways.items()}

    def see(self, expression: str) -> None:
        """Wait until the expression has a series in both."""
        eventually(
            lambda: all(one.query(expression) for one in self.ways.values()),
            what=f"there is {expression}",
            state=lambda: {way: one.query(expression) for way, one in self.ways.items()},
        )


@contextlib.contextmanager
def watching(stack: Stack, collector: Collector, every: str = "1s") -> Iterator[Watchers]:
    """Run both, once every service is seen. A scrape may take as long as `every`."""
    services = [service for service in stack.services.values() if service.name not in _WITHOUT_METRICS]
    targets = [{"targets": [f"127.0.0.1:{service.port}"], "labels": {"service": service.name}} for service in services]
    own = collector.telemetry
    with contextlib.ExitStack() as both:

        def started(way: str, *jobs: dict[str, Any]) -> Prometheus:
            return both.enter_context(_running(stack.folder / way, every, list(jobs)))

        watchers = Watchers(
            started("scraped", _job("cadre", targets), _job("collector", [{"targets": [own]}])),
            started("sent", _job("collector", [{"targets": [own, collector.scraped]}])),
        )
        eventually(
            lambda: len(watchers.scraping.query('up{job="cadre"} == 1')) == len(targets),
            what="all are scraped",
        )
        watchers.see('up{job="collector"} == 1')
        yield watchers


def _job(name: str, targets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a scrape job as it is shipped, with targets of the test's."""
    (shipped,) = [job for job in SHIPPED["scrape_configs"] if job["job_name"] == name]
    kept = {key: value for key, value in shipped.items() if key not in ("dns_sd_configs", "relabel_configs")}
    return {**kept, "static_configs": targets}


@contextlib.contextmanager
def _running(folder: Path, every: str, jobs: list[dict[str, Any]]) -> Iterator[Prometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    folder.mkdir()
    (folder / "alerts.yml").write_text(_cut_short(RULES))
    configuration = {
        "global": {"scrape_interval": every, "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"127.0.0.1:{free_port()}"
    argv = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={url}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
    try:
        one = Prometheus(f"http://{url}")
        eventually(one.is_ready, what="Prometheus is ready")
        yield one
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=patience())


def _cut_short(rules: str) -> str:
    """Return the rules with half a minute for each window, three seconds for each `for`, and what takes an hour or
    thousands of records at once."""
    short = re.sub(r"\[\d+[mh]\]", "[30s]", re.sub(r"for: \d+[ms]", "for: 3s", rules))
    return short.replace("offset 10m", "offset 30s").replace("> 3600", "> 2").replace("> 5000", "> 20")
