"""The OpenTelemetry Collector and Jaeger as processes, for tests that look at what arrives there."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2
import yaml

from harness.nats_server import free_port
from harness.patience import eventually, patience

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "observability"
SHIPPED = ROOT / "deploy" / "otel" / "collector.yaml"


class Program:
    """A program that answers at an address once it is ready."""

    def __init__(self, name: str, config: dict[str, Any], health: str, folder: Path) -> None:
        self.folder = folder
        self._argv = [str(BUILT / name), "--config", str(folder / f"{name}.yaml")]
        self._health = health
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._file = folder / f"{name}.yaml"
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Take a configuration with the next start."""
        self.config = config
        self._file.write_text(yaml.safe_dump(config))

    def start(self) -> None:
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(self._argv, cwd=self.folder, stdout=output, stderr=output)
        eventually(self._answers, what=f"{self._health} answers", state=self._log.read_text)

    def kill(self) -> None:
        """kill -9"""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self._end(signal.SIGTERM)

    close = stop

    def _end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(timeout=patience())

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text()
        try:
            return httpx2.get(self._health, timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False


class Jaeger(Program):
    """Jaeger with its traces in memory."""

    def __init__(self, folder: Path) -> None:
        self.otlp = f"127.0.0.1:{free_port()}"
        self.http = f"http://127.0.0.1:{(http := free_port())}"
        """For those that send without a Collector."""
        self.url = f"http://127.0.0.1:{(query := free_port())}"
        self.refusing = f"127.0.0.1:{(other := free_port())}"
        """An address that speaks gRPC and has no service for spans."""
        config = {
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "pipelines": {
                    "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]},
                },
                "telemetry": {"metrics": {"level": "none"}},
            },
            "extensions": {
                "jaeger_storage": {"backends": {"traces": {"memory": {"max_traces": 10_000}}}},
                "jaeger_query": {
                    "storage": {"traces": "traces"},
                    "http": {"endpoint": f"127.0.0.1:{query}"},
                    "grpc": {"endpoint": f"127.0.0.1:{other}"},
                },
            },
            "receivers": {
                "otlp": {"protocols": {"grpc": {"endpoint": self.otlp}, "http": {"endpoint": f"127.0.0.1:{http}"}}}
            },
            "exporters": {"jaeger_storage_exporter": {"trace_storage": "traces"}},
        }
        super().__init__("jaeger", config, f"{self.url}/api/services", folder)

    def trace(self, trace: str) -> list[dict[str, Any]]:
        """Return the spans of a trace in the JSON of OTLP, each with its `resource`; none while Jaeger has none."""
        answer = httpx2.get(f"{self.url}/api/v3/traces/{trace}", timeout=patience())
        if answer.status_code == 404:
            return []
        answer.raise_for_status()
        return [
            {**span, "resource": attributes_of(group["resource"])}
            for group in answer.json()["result"]["resourceSpans"]
            for scope in group["scopeSpans"]
            for span in scope.get("spans", ())
        ]

    def asks(self) -> set[tuple[str, str]]:
        """Return which service calls which, as Jaeger's page of the system's architecture shows it."""
        query = {"endTs": round(time.time() * 1000) + 60_000, "lookback": 3_600_000}
        answer = httpx2.get(f"{self.url}/api/dependencies", params=query, timeout=patience())
        answer.raise_for_status()
        return {(one["parent"], one["child"]) for one in answer.json()["data"]}


class Collector(Program):
    """The shipped configuration, with other addresses.

    Without `servicegraph`, which not every module proxy has: see `edges_of`.
    """

    def __init__(self, folder: Path, backend: str, **sampling: Any) -> None:
        config = yaml.safe_load(SHIPPED.read_text())
        self.url = f"http://127.0.0.1:{(http := free_port())}"
        self.scraped = f"127.0.0.1:{(scraped := free_port())}"
        health = free_port()
        protocols = config["receivers"]["otlp"]["protocols"]
        protocols["http"]["endpoint"] = f"127.0.0.1:{http}"
        protocols["grpc"]["endpoint"] = f"127.0.0.1:{free_port()}"
        tempo = config["exporters"]["otlp_grpc/tempo"]
        tempo["endpoint"] = backend
        config["exporters"]["prometheus"]["endpoint"] = f"127.0.0.1:{scraped}"
        config["extensions"]["health_check"]["endpoint"] = f"127.0.0.1:{health}"
        config["extensions"]["file_storage"]["directory"] = str(folder / "queue")
        del config["connectors"]["servicegraph"]
        traces, metrics = config["service"]["pipelines"]["traces"], config["service"]["pipelines"]["metrics"]
        traces["exporters"].remove("servicegraph")
        metrics["receivers"].remove("servicegraph")
        self.telemetry = f"127.0.0.1:{(telemetry := free_port())}"
        config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"] = {
            "host": "127.0.0.1",
            "port": telemetry,
        }
        if sampling:
            config["processors"]["tail_sampling"] = sampling
            traces["processors"].append("tail_sampling")
        super().__init__("otelcol", config, f"http://127.0.0.1:{health}", folder)

    def send_to(self, backend: str) -> None:
        """Send spans to another backend from the next start on."""
        self.config["exporters"]["otlp_grpc/tempo"]["endpoint"] = backend
        self.configure(self.config)


_CLIENT, _SERVER = (3, 4), (2, 5)
"""Kinds of spans: CLIENT and PRODUCER, SERVER and CONSUMER."""


def edges_of(spans: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the pairs of services that the Collector's `servicegraph` takes from a trace: a CLIENT or PRODUCER, and
    the SERVER or CONSUMER below it."""
    asking = {span["spanId"]: service_of(span) for span in spans if span["kind"] in _CLIENT}
    asked = [span for span in spans if span["kind"] in _SERVER]
    return {(asking[span["parentSpanId"]], service_of(span)) for span in asked if span.get("parentSpanId") in asking}


def service_of(span: dict[str, Any]) -> str:
    name: str = span["resource"]["service.name"]
    return name


def attributes_of(holder: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span or resource, each as its value in JSON."""
    return {one["key"]: next(iter(one["value"].values())) for one in holder.get("attributes", ())}
