"""The shipped alerts in two real Prometheus, each set off by its own fault: one scrapes the services, the other has
what they send to the Collector, and every alert fires in both.

The rules are the shipped ones with their times cut short: a window of a quarter of an hour is half a minute here.
"""

import asyncio
import contextlib
import shutil
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
import yaml

from alerts.prometheus_process import RULES, Watchers, watching
from alerts.world import ROOM, sending_to
from cadre.adapters.nats.streams import jetstream
from harness.full_server import FullServer, fill
from harness.nats_cluster import ClusterStack
from harness.nats_proxy import API, NatsProxy
from harness.otlp_receiver import OtlpReceiver
from harness.patience import eventually
from harness.stack import Gateway, Stack
from observability.programs import Collector, Jaeger

SET_OFF: set[str] = set()

pytestmark = pytest.mark.timeout(900)


def fires(watchers: Watchers, *alerts: str) -> None:
    for alert in alerts:
        watchers.fires(alert)
        SET_OFF.add(alert)


def test_nothing_fires_while_all_is_well(watchers: Watchers, gateway: Gateway) -> None:
    gateway.finished(gateway.submit("helper", "say hello"))
    watchers.see('cadre_runs_finished_total{cadre_run_state="success"} > 0')
    assert watchers.firing() == {"scraped": set(), "sent": set()}


def test_the_first_cost_is_an_increase(watchers: Watchers, gateway: Gateway) -> None:
    watchers.see('cadre_cost_total{gen_ai_agent_name="keeper"} == 0')
    gateway.finished(gateway.submit("keeper", "keep", user="bert"))
    watchers.see('increase(cadre_cost_total{gen_ai_agent_name="keeper"}[1m]) > 0')


def test_a_crash_loop_is_told(watchers: Watchers, stack: Stack, gateway: Gateway) -> None:
    """Each worker counts one loss at most before it dies: no one who reads workers alone sees anything grow."""
    stack.hold_model()
    run = gateway.submit("worker", "hold on")
    gateway.wait_for(run, "model.called", agent="worker")
    for attempt in (2, 3):
        stack.services["worker"].kill()
        stack.services["worker"].start()
        gateway.wait_for(run, "model.called", agent="worker", attempt=attempt)
    fires(watchers, "CadreWorkersDie")
    stack.release_model()
    gateway.finished(run)


def test_a_service_that_is_gone_is_told(watchers: Watchers, stack: Stack, gateway: Gateway) -> None:
    stack.services["helper"].kill()
    queued = gateway.submit("helper", "say hello")
    fires(watchers, "CadreServiceDown", "CadreRunsQueued")
    assert gateway.run(queued)["state"] == "queued"
    stack.services["helper"].start()
    assert gateway.finished(queued)["state"] == "success"
    for alert in ("CadreServiceDown", "CadreRunsQueued"):
        watchers.over(alert)


def test_a_queue_that_grows_is_told(watchers: Watchers, stack: Stack, gateway: Gateway) -> None:
    gateway.wait_offered(5)
    stack.hold_model()
    runs = [gateway.submit("helper", f"hold {n}") for n in range(110)]
    fires(watchers, "CadreQueueGrows")
    stack.release_model()
    for run in runs:
        gateway.finished(run)
    watchers.over("CadreQueueGrows")


def test_a_dead_endpoint_is_told(watchers: Watchers, stack: Stack, gateway: Gateway) -> None:
    stack.services["model"].kill()
    run = gateway.submit("helper", "say nothing")
    fires(watchers, "CadreModelFails")
    stack.services["model"].start()
    assert gateway.finished(run)["state"] == "success"


def test_runs_that_fail_are_told(watchers: Watchers, gateway: Gateway) -> None:
    for n in range(5):
        run = gateway.submit("worker", f"think {n}", deadline=0.5)
        assert gateway.finished(run)["state"] == "error"
    fires(watchers, "CadreRunsFail")


def test_a_call_that_nobody_decides_on_is_told(watchers: Watchers, gateway: Gateway, tmp_path: Path) -> None:
    held = gateway.submit("worker", f"use refund {tmp_path / 'mark'} 0.1")
    fires(watchers, "CadreApprovalWaits")
    gateway.request("POST", f"/v1/runs/{held}/cancel")
    gateway.finished(held)
    watchers.over("CadreApprovalWaits")


def test_a_message_that_nobody_can_read_is_told(watchers: Watchers, stack: Stack) -> None:
    async def send() -> None:
        async with stack.platform() as platform:
            run = uuid4().hex
            subject = platform.topology.inbox("helper", "gateway", run, run)
            await jetstream.append(platform.nc, subject, b"no record")

    asyncio.run(send())
    fires(watchers, "CadreDeadLetters")


def test_a_receiver_of_spans_that_is_gone_is_told(watchers: Watchers, gateway: Gateway, receiver: OtlpReceiver) -> None:
    receiver.stop()
    for n in range(40):
        gateway.finished(gateway.submit("helper", f"say {n}"))
    fires(watchers, "CadreTraceReceiverDown", "CadreTracesLate")
    receiver.start()
    watchers.over("CadreTraceReceiverDown", "CadreTracesLate")


def test_a_receiver_of_metrics_that_is_gone_is_told(watchers: Watchers, collector: Collector) -> None:
    """A scrape shows it at once; without that the Collector is missed, and what failed is seen once it is back."""
    collector.stop()
    scraping, sent = watchers.scraping, watchers.sent
    eventually(lambda: "CadreMetricsNotSent" in scraping.firing(), what="it fires", state=lambda: watchers.firing())
    eventually(lambda: "CadreServiceDown" in sent.firing(), what="the Collector is missed", state=watchers.firing)
    collector.start()
    fires(watchers, "CadreMetricsNotSent")
    watchers.over("CadreMetricsNotSent", "CadreServiceDown", "CadreNatsSilent")


def test_a_backend_that_takes_no_spans_of_the_collector_is_told(
    watchers: Watchers, gateway: Gateway, collector: Collector, jaeger: Jaeger
) -> None:
    run = gateway.submit("helper", "say hello")
    gateway.finished(run)
    collector.stop()
    collector.send_to(jaeger.refusing)
    collector.start()
    spans = gateway.request("GET", f"/v1/runs/{run}/trace", params={"format": "otlp"})
    taken = httpx2.post(
        f"{collector.url}/v1/traces", content=spans.content, headers={"content-type": "application/json"}
    )
    assert taken.status_code == 200, taken.text
    fires(watchers, "CollectorDropsSpans")
    collector.stop()
    collector.send_to(jaeger.otlp)
    collector.start()
    watchers.over("CollectorDropsSpans", "CadreServiceDown", "CadreNatsSilent")


def test_a_receiver_that_refuses_for_good_is_told(watchers: Watchers, gateway: Gateway, receiver: OtlpReceiver) -> None:
    receiver.fail(1_000_000, 400)
    gateway.finished(gateway.submit("helper", "say it"))
    fires(watchers, "CadreTracesRefused")
    receiver.stop()
    receiver.start()


def test_a_store_without_room_is_told(watchers: Watchers, stack: Stack) -> None:
    async def fill_up() -> None:
        async with stack.platform() as platform:
            await fill(platform.nc, platform.topology)

    asyncio.run(fill_up())
    fires(watchers, "CadreStoreFills", "CadreStoreFull")
    assert isinstance(stack.nats, FullServer)
    stack.nats.raise_limit(4 * ROOM)
    watchers.over("CadreStoreFills", "CadreStoreFull")


def test_a_silent_jetstream_is_told(watchers: Watchers, proxy: NatsProxy) -> None:
    proxy.swallow(API)
    fires(watchers, "CadreStoreSilent")
    proxy.let_pass()
    watchers.over("CadreStoreSilent", "CadreNatsSilent")


def test_a_server_that_takes_small_messages_only_is_told(watchers: Watchers, stack: Stack) -> None:
    assert isinstance(stack.nats, FullServer)
    stack.nats.start_again("max_payload: 1MB", "max_payload: 64KB")
    fires(watchers, "CadreStoreSmall")
    stack.nats.start_again("max_payload: 64KB", "max_payload: 1MB")
    watchers.over("CadreStoreSmall")


def test_a_store_that_refuses_is_told(watchers: Watchers, stack: Stack) -> None:
    async def seal() -> None:
        async with stack.platform() as platform:
            for shard in (0, 1):
                name = platform.topology.stream(shard)
                config = (await jetstream.api(platform.nc, f"STREAM.INFO.{name}"))["config"]
                await jetstream.api(platform.nc, f"STREAM.UPDATE.{name}", config | {"sealed": True})

    asyncio.run(seal())
    fires(watchers, "CadreStoreRefuses")


def test_a_server_that_is_gone_and_comes_back_empty_is_told(watchers: Watchers, stack: Stack) -> None:
    stack.nats.kill()
    fires(watchers, "CadreNatsSilent")
    shutil.rmtree(stack.folder / "store")
    stack.nats.start()
    fires(watchers, "CadreStoreLost")


def test_a_copy_whose_server_is_gone_is_told(tmp_path: Path) -> None:
    collector = Collector(tmp_path, "127.0.0.1:9")
    with ClusterStack(tmp_path) as stack, contextlib.closing(collector):
        collector.start()
        stack.environment |= sending_to(collector)
        stack.cluster.start()
        stack.gateway()
        # Until the server is back the others wait four seconds for the readers that lay on it, in each list.
        with watching(stack, collector, every="6s") as watchers:
            watchers.see("cadre_stream_replicas_lagging")
            watchers.over("CadreStoreCopyLags")
            stack.cluster.servers["n3"].kill()
            fires(watchers, "CadreStoreCopyLags")
            stack.cluster.servers["n3"].start()
            watchers.over("CadreStoreCopyLags")


def test_no_alert_is_left_out() -> None:
    """Run with the rest of this file."""
    known = {rule["alert"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]}
    assert known == SET_OFF
