"""The team that the alerts and the dashboard are tried with: all services, each of which is scraped and also sends its
metrics to the Collector."""

from __future__ import annotations

from pathlib import Path

import yaml

from harness.full_server import FullServer
from harness.nats_proxy import NatsProxy
from harness.stack import Gateway, Stack
from observability.programs import Collector

HERE = Path(__file__).parent
TEAM = Path(__file__).parents[1] / "e2e" / "traced"

ROOM = 48 * 1024 * 1024


def stack_behind(proxy: NatsProxy, folder: Path, collector: Collector, traces: str) -> Stack:
    """Return a stack on the proxy's server, which may store so much; its spans go to `traces`."""
    stack = Stack(folder)
    stack.nats = FullServer(folder, ROOM, port=proxy.server_port)
    prices = folder / "prices.yaml"
    prices.write_text("scripted: {input: 1000, output: 1000}\n")
    stack.environment |= {
        "CADRE_NATS_URL": proxy.url,
        "CADRE_PRICES": str(prices),
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces,
        **sending_to(collector),
    }
    return stack


def sending_to(collector: Collector) -> dict[str, str]:
    """Return the environment of services that send their metrics there every second."""
    metrics = f"{collector.url}/v1/metrics"
    return {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": metrics, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}


def quick_to_forget(collector: Collector) -> Collector:
    """Return the Collector, with what services send every second kept for three times that, and no less than Prometheus
    looks."""
    collector.config["exporters"]["prometheus"]["metric_expiration"] = "5s"
    collector.configure(collector.config)
    return collector


def open_team(stack: Stack) -> Gateway:
    """Start a service of each kind; return the gateway once all agents are offered what they need."""
    rules = [yaml.safe_load((of / "script.yaml").read_text())["rules"] for of in (HERE, TEAM)]
    script = stack.folder / "script.yaml"
    script.write_text(yaml.safe_dump({"rules": [*rules[0], *rules[1]]}))
    stack.model(script)
    for name in ("boss", "worker", "helper"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    for name in ("coder", "keeper"):
        stack.agent(HERE / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    stack.add("sandbox", "cadre_sandbox", start=False)
    memory = {"CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
    stack.add("memory", "cadre_memory", start=False, **memory)
    stack.add("tracer", "cadre_tracer", start=False)
    return stack.open_gateway(5)
