"""The shipped alerts in a real Prometheus, each set off by its own fault; and what the dashboard shows meanwhile.

The rules are the shipped ones with their times cut short: a window of a quarter of an hour is half a minute here.
"""

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
import yaml

from alerts.prometheus_process import Prometheus, scraping
from cadre.adapters.nats.streams import jetstream
from harness.full_server import FullServer, fill
from harness.nats_cluster import ClusterStack
from harness.otlp_receiver import OtlpReceiver
from harness.patience import eventually
from harness.people import decide, waiting
from harness.stack import Gateway, Stack

HERE = Path(__file__).parent
DEPLOY = Path(__file__).parents[2] / "deploy"
TEAM = Path(__file__).parents[1] / "e2e" / "traced"

RULES = (DEPLOY / "prometheus/alerts.yml").read_text()
ROOM = 48 * 1024 * 1024

NOTHING_THERE = {"From a point to its trace": "the collector makes these from spans"}
"""Panels without data, and why."""

NOT_SET_OFF = {"CollectorDropsSpans": "the collector's image is not to be had here"}
"""Alerts without a fault of their own, and why."""

SET_OFF: set[str] = set()

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    one = Stack(folder)
    one.nats = FullServer(folder, ROOM, port=one.nats.port)
    with one as stack:
        stack.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
        stack.environment["OTEL_METRIC_EXPORT_INTERVAL"] = "1000"
        prices, script = folder / "prices.yaml", folder / "script.yaml"
        prices.write_text("scripted: {input: 1000, output: 1000}\n")
        stack.environment["CADRE_PRICES"] = str(prices)
        rules = [yaml.safe_load((of / "script.yaml").read_text())["rules"] for of in (HERE, TEAM)]
        script.write_text(yaml.safe_dump({"rules": [*rules[0], *rules[1]]}))
        stack.model(script)
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
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


@pytest.fixture(scope="module")
def prometheus(stack: Stack, gateway: Gateway) -> Iterator[Prometheus]:
    with scraping(stack, RULES) as one:
        yield one


def fires(prometheus: Prometheus, *alerts: str) -> None:
    for alert in alerts:
        prometheus.fires(alert)
        SET_OFF.add(alert)


def test_nothing_fires_while_all_is_well(prometheus: Prometheus, gateway: Gateway) -> None:
    gateway.finished(gateway.submit("helper", "say hello"))
    eventually(
        lambda: bool(prometheus.query('cadre_runs_finished_total{cadre_run_state="success"} > 0')),
        what="the run is counted",
    )
    assert prometheus.firing() == set()


def test_the_first_cost_is_an_increase(prometheus: Prometheus, gateway: Gateway) -> None:
    assert [one["value"][1] for one in prometheus.query('cadre_cost_total{gen_ai_agent_name="keeper"}')] == [
        "0"
    ]
    gateway.finished(gateway.submit("keeper", "keep", user="bert"))
    eventually(
        lambda: bool(prometheus.query('increase(cadre_cost_total{gen_ai_agent_name="keeper"}[1m]) > 0')),
        what="Prometheus sees it grow",
    )


def test_every_panel_shows_something(prometheus: Prometheus, gateway: Gateway, tmp_path: Path) -> None:
    held = gateway.submit("boss", f"delegate: use refund {tmp_path / 'mark'} 0.1")
    (call,) = waiting(gateway, held)
    assert decide(gateway, call["call"], "approved").status_code in (200, 202)
    gateway.finished(held)
    held = gateway.submit("boss", f"delegate: use refund {tmp_path / 'mark'} 0.1")
    waiting(gateway, held)
    gateway.finished(gateway.submit("boss", "delegate: think 1"))
    assert gateway.finished(gateway.submit("worker", "use effect /nowhere/mark 0"))["state"] == "success"
    assert gateway.finished(gateway.submit("worker", "be refused"))["state"] == "error"
    said = {"model": "helper", "messages": [{"role": "user", "content": "say hello"}]}
    assert gateway.request("POST", "/v1/chat/completions", json=said).status_code == 200
    assert gateway.finished(gateway.submit("coder", "count"))["state"] == "success"
    for _ in range(2):
        assert gateway.finished(gateway.submit("keeper", "keep", user="anna"))["state"] == "success"
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
    stack.hold_model()
    run = gateway.submit("worker", "hold on")
    gateway.wait_for(run, "model.called", agent="worker")
    for attempt in (2, 3):
        stack.services["worker"].kill()
        stack.services["worker"].start()
        gateway.wait_for(run, "model.called", agent="worker", attempt=attempt)
    fires(prometheus, "CadreWorkersDie")
    stack.release_model()
    gateway.finished(run)


def test_a_service_that_is_gone_is_told(prometheus: Prometheus, stack: Stack, gateway: Gateway) -> None:
    stack.services["helper"].kill()
    queued = gateway.submit("helper", "say hello")
    fires(prometheus, "CadreServiceDown", "CadreRunsQueued")
    assert gateway.run(queued)["state"] == "queued"
    stack.services["helper"].start()
    assert gateway.finished(queued)["state"] == "success"
    for alert in ("CadreServiceDown", "CadreRunsQueued"):
        prometheus.over(alert)


def test_a_queue_that_grows_is_told(prometheus: Prometheus, stack: Stack, gateway: Gateway) -> None:
    gateway.wait_offered(5)
    stack.hold_model()
    runs = [gateway.submit("helper", f"hold {n}") for n in range(110)]
    fires(prometheus, "CadreQueueGrows")
    stack.release_model()
    for run in runs:
        gateway.finished(run)
    prometheus.over("CadreQueueGrows")


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


def test_a_call_that_nobody_decides_on_is_told(
    prometheus: Prometheus, gateway: Gateway, tmp_path: Path
) -> None:
    held = gateway.submit("worker", f"use refund {tmp_path / 'mark'} 0.1")
    fires(prometheus, "CadreApprovalWaits")
    gateway.request("POST", f"/v1/runs/{held}/cancel")
    gateway.finished(held)
    prometheus.over("CadreApprovalWaits")


def test_a_message_that_nobody_can_read_is_told(prometheus: Prometheus, stack: Stack) -> None:
    async def send() -> None:
        async with stack.platform() as platform:
            run = uuid4().hex
            subject = platform.topology.inbox("helper", "gateway", run, run)
            await jetstream.append(platform.nc, subject, b"no record")

    asyncio.run(send())
    fires(prometheus, "CadreDeadLetters")


def test_a_receiver_that_is_gone_is_told(
    prometheus: Prometheus, gateway: Gateway, receiver: OtlpReceiver
) -> None:
    receiver.stop()
    for n in range(40):
        gateway.finished(gateway.submit("helper", f"say {n}"))
    fires(prometheus, "CadreTraceReceiverDown", "CadreMetricsNotSent", "CadreTracesLate")
    receiver.start()
    prometheus.over("CadreTraceReceiverDown", "CadreMetricsNotSent", "CadreTracesLate")


def test_a_receiver_that_refuses_for_good_is_told(
    prometheus: Prometheus, gateway: Gateway, receiver: OtlpReceiver
) -> None:
    receiver.fail(1_000_000, 400)
    gateway.finished(gateway.submit("helper", "say it"))
    fires(prometheus, "CadreTracesRefused")
    receiver.stop()
    receiver.start()


def test_a_store_without_room_is_told(prometheus: Prometheus, stack: Stack) -> None:
    async def fill_up() -> None:
        async with stack.platform() as platform:
            await fill(platform.nc, platform.topology)

    asyncio.run(fill_up())
    fires(prometheus, "CadreStoreFills", "CadreStoreFull")
    assert isinstance(stack.nats, FullServer)
    stack.nats.raise_limit(4 * ROOM)
    prometheus.over("CadreStoreFills", "CadreStoreFull")


def test_a_store_that_refuses_is_told(prometheus: Prometheus, stack: Stack) -> None:
    async def seal() -> None:
        async with stack.platform() as platform:
            for shard in (0, 1):
                name = platform.topology.stream(shard)
                config = (await jetstream.api(platform.nc, f"STREAM.INFO.{name}"))["config"]
                await jetstream.api(platform.nc, f"STREAM.UPDATE.{name}", config | {"sealed": True})

    asyncio.run(seal())
    fires(prometheus, "CadreStoreRefuses")


def test_a_server_that_is_gone_and_comes_back_empty_is_told(prometheus: Prometheus, stack: Stack) -> None:
    stack.nats.kill()
    fires(prometheus, "CadreNatsSilent")
    shutil.rmtree(stack.folder / "store")
    stack.nats.start()
    fires(prometheus, "CadreStoreLost")


def test_a_copy_whose_server_is_gone_is_told(tmp_path: Path) -> None:
    with ClusterStack(tmp_path) as stack:
        stack.cluster.start()
        stack.gateway()
        # Until the server is back the others wait four seconds for the readers that lay on it, in each list.
        with scraping(stack, RULES, every="6s") as prometheus:
            eventually(
                lambda: bool(prometheus.query("cadre_stream_replicas_lagging")), what="copies are counted"
            )
            prometheus.over("CadreStoreCopyLags")
            stack.cluster.servers["n3"].kill()
            fires(prometheus, "CadreStoreCopyLags")
            stack.cluster.servers["n3"].start()
            prometheus.over("CadreStoreCopyLags")


def test_no_alert_is_left_out() -> None:
    """Run with the rest of this file."""
    known = {rule["alert"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]}
    assert known - SET_OFF == NOT_SET_OFF.keys()
