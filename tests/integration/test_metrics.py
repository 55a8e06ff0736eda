"""Figures of real services: scraped, sent to a real receiver, the same however often a record was delivered."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from nats.aio.client import Client

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.streams import jetstream
from cadre.protocol.code import INTERPRETER_TOOL
from cadre.protocol.messages import Origin, ToolCall
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cadre.telemetry.metrics.names import AGENT_DURATION, METRICS, STEPS
from cadre.telemetry.tracing.ids import trace_id
from harness.exposition import Series, series_of, total
from harness.nats_server import free_port
from harness.otlp_receiver import OtlpReceiver
from harness.patience import eventually, patience
from harness.people import decide, waiting
from harness.prometheus import prometheus_label, prometheus_name
from harness.stack import Gateway, Service, Stack
from integration.tracer_world import with_bus

TEAM = Path(__file__).parents[1] / "e2e" / "traced"
CANARY = "quetzalcoatlus"


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


@pytest.fixture(scope="module")
def stack(receiver: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment |= {
            "CADRE_LOG_FORMAT": "json",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
        }
        stack.model(TEAM / "script.yaml")
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    for name in ("boss", "worker", "helper"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    stack.add("tracer", "cadre_tracer", start=False)
    return stack.open_gateway()


def scraped(service: Service) -> Series:
    answer = httpx2.get(f"{service.url}/metrics", timeout=patience())
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return series_of(answer.text)


def test_a_teams_work_in_figures(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    """And none of it reports what was worked at."""
    marks = tmp_path / CANARY
    before, begun = scraped(stack.services["worker"]), scraped(gateway.service)
    run = gateway.submit("boss", f"delegate: use refund {marks} 0.2")
    (held,) = waiting(gateway, run)

    def shows_the_wait() -> bool:
        return total(scraped(gateway.service), "cadre_approvals_waiting") == 1

    eventually(shows_the_wait, what="the gateway shows the call that waits")
    now = scraped(gateway.service)
    assert total(now, "cadre_runs", cadre_run_state="waiting", gen_ai_agent_name="worker") == 1
    assert total(now, "cadre_approvals_oldest_age_seconds") > 0
    assert decide(gateway, held["call"], "approved").status_code in (200, 202)
    assert gateway.finished(run)["state"] == "success", stack.logs()

    boss, worker = (scraped(stack.services[name]) for name in ("boss", "worker"))
    finished = total(scraped(gateway.service), "cadre_runs_finished_total", cadre_run_state="success")
    assert finished - total(begun, "cadre_runs_finished_total") == 3
    assert total(worker, "gen_ai_invoke_agent_duration_seconds_count") == 1
    assert total(worker, "cadre_steps_total") == 2
    calls = total(worker, "gen_ai_client_operation_duration_seconds_count", gen_ai_operation_name="chat")
    assert calls - total(before, "gen_ai_client_operation_duration_seconds_count") == 2
    assert total(worker, "gen_ai_client_token_usage_count", gen_ai_token_type="output") == 2
    assert total(worker, "gen_ai_client_token_usage_sum", gen_ai_token_type="input") > 0
    assert total(worker, "gen_ai_execute_tool_duration_seconds_count", gen_ai_tool_name="refund") == 1
    assert total(worker, "gen_ai_execute_tool_duration_seconds_sum", gen_ai_tool_name="refund") >= 0.2
    assert total(worker, "gen_ai_invoke_agent_tool_calls_sum") == 1
    assert total(worker, "cadre_approval_wait_duration_seconds_count", cadre_approval_decision="approved") == 1
    assert total(boss, "gen_ai_client_operation_duration_seconds_count", cadre_model_purpose="plan") == 1

    def nothing_is_left() -> bool:
        now = scraped(gateway.service)
        kinds = {dict(labels).get("cadre_queue_kind") for name, labels in now if name == "cadre_queue_lag"}
        assert {"agent", "tool", "tracer"} <= kinds
        return total(now, "cadre_queue_lag") == 0 and total(now, "cadre_runs") == 0

    eventually(nothing_is_left, what="all queues are empty")
    assert total(scraped(stack.services["tracer"]), "cadre_tracer_spans_total", cadre_outcome="exported") > 10

    known = {prometheus_name(metric) for metric in METRICS} | {"target_info"}
    labels = {prometheus_label(name) for metric in METRICS for name in metric.attributes} | {"le"}
    for service in stack.services.values():
        if service.name == "model":
            continue
        for name, has in scraped(service):
            assert re.sub("_(bucket|sum|count)$", "", name) in known or name in known, name
            assert name == "target_info" or {key for key, _ in has} <= labels, name
            assert not any(run in value or CANARY in value for _, value in has), (name, has)


def test_a_record_that_comes_again_counts_once(stack: Stack, gateway: Gateway) -> None:
    before = scraped(gateway.service)
    run = gateway.submit("boss", "delegate: think 3")
    gateway.wait_for(run, "model.called", agent="worker")
    stack.services["worker"].kill()
    assert total(scraped(gateway.service), "cadre_queue_lag", cadre_queue_name="worker") == 1
    stack.services["worker"].start()
    assert gateway.finished(run)["state"] == "success"
    worker = scraped(stack.services["worker"])
    assert total(worker, "cadre_records_redelivered_total", cadre_queue_kind="agent") >= 1
    assert total(worker, "gen_ai_invoke_agent_duration_seconds_count") == 1
    assert total(worker, "gen_ai_client_operation_duration_seconds_count") == 1
    now = scraped(gateway.service)
    assert total(now, "cadre_runs_finished_total") - total(before, "cadre_runs_finished_total") == 3
    assert total(before, "cadre_model_attempts_lost_total", gen_ai_agent_name="worker") == 0
    assert total(now, "cadre_model_attempts_lost_total", gen_ai_agent_name="worker") == 1
    gateway.service.kill()
    gateway.service.start()
    assert total(scraped(gateway.service), "cadre_model_attempts_lost_total") == 1


def test_a_message_that_nobody_can_read_is_seen(stack: Stack, gateway: Gateway) -> None:
    def dead_letters() -> float:
        return total(scraped(gateway.service), "cadre_dead_letters")

    before = dead_letters()
    run = gateway.submit("helper", f"say {CANARY}")  # what comes for a run that never was is removed
    gateway.finished(run)

    async def garble(nc: Client, topology: Topology) -> None:
        await jetstream.append(nc, topology.call("keyed", "helper", run, f"{run}_1_0"), b"{")

    with_bus(Settings(nats_url=stack.nats.url), garble)
    eventually(lambda: dead_letters() == before + 1, what="the gateway shows the dead letter", state=stack.logs)


def test_memory_and_sandbox_have_figures_of_their_own(stack: Stack, gateway: Gateway) -> None:
    folder = str(stack.folder / "memories")
    memory = stack.add("memory", "cadre_memory", CADRE_MEMORY_DIRECTORY=folder, CADRE_MEMORY_EMBEDDINGS="none")
    sandbox = stack.add("sandbox", "cadre_sandbox")
    asked = {"remember": {"text": CANARY}, "recall": {"query": CANARY}, INTERPRETER_TOOL: {"code": "1 + 1"}}

    async def call(nc: Client, topology: Topology) -> None:
        bus = NatsBus(nc, topology, NatsBlobs(nc, topology))
        for n, (tool, arguments) in enumerate(asked.items()):
            message = ToolCall(
                id=f"m1_1_{n}",
                tree="m1",
                run="m1",
                at=time.time(),
                agent="worker",
                tool=tool,
                arguments=arguments,
                origin=Origin(reads=["run"]),
            )
            await bus.send(message, "worker")

    with_bus(Settings(nats_url=stack.nats.url), call)

    def answered() -> bool:
        seen = scraped(memory)
        return all(
            total(seen, "cadre_memory_call_duration_seconds_count", gen_ai_tool_name=tool) == 1
            for tool in ("remember", "recall")
        )

    eventually(answered, what="the memory service has answered", state=lambda: scraped(memory))
    found = scraped(sandbox)
    assert total(found, "cadre_records_redelivered_total", cadre_queue_name=INTERPRETER_TOOL) == 0
    states = {dict(labels)["cadre_sandbox_state"] for name, labels in found if name == "cadre_sandbox_sessions"}
    assert states == {"busy", "warm"}
    assert not any(CANARY in text for text in (memory.log.read_text(), sandbox.log.read_text()))
    for service in (memory, sandbox):
        assert service.terminate() == 0


def test_what_a_service_logs_says_where_it_belongs(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    """In JSON, with the run and its trace, and without what was worked at."""
    marks = tmp_path / CANARY
    run = gateway.submit("worker", f"use effect {marks} 2")
    eventually(marks.exists, what="the tool has begun")
    # Its executor has something to say: the result cannot be reported at once.
    stack.nats.stop()
    said = stack.services["tools"].log
    eventually(lambda: "trying again" in said.read_text(), what="the executor says so")
    stack.nats.start()
    gateway.finished(run)
    lines = []
    for service in stack.services.values():
        if service.name == "model":
            continue
        text = service.log.read_text()
        assert CANARY not in text, service.name
        lines += [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {line["service"] for line in lines} >= {"boss", "gateway", "tools", "tracer"}
    assert all({"time", "level", "logger", "message", "instance"} <= set(line) for line in lines)
    placed = [line for line in lines if "run" in line]
    assert run in {line["run"] for line in placed}
    assert all(line["trace_id"] == trace_id(line["tree"]) for line in placed)


def test_the_same_by_otlp(stack: Stack, gateway: Gateway, receiver: OtlpReceiver) -> None:
    """The last figures of a service are sent as it ends."""
    gateway.finished(gateway.submit("helper", f"say {CANARY}"))
    assert stack.services["helper"].terminate() == 0
    receiver.until(
        lambda: any(p.service == "helper" and p.name == AGENT_DURATION.name for p in receiver.points),
        "the helper's metrics",
    )
    points = [point for point in receiver.points if point.service == "helper"]
    assert {point.name for point in points} <= {metric.name for metric in METRICS}
    assert max(point.value for point in points if point.name == STEPS.name) >= 1
    assert not any(CANARY.encode() in body for body in receiver.requests)
    stack.services["helper"].start()


def test_a_dead_receiver_keeps_nobody_from_ending(stack: Stack, gateway: Gateway) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    name = "stranded"
    service = stack.add(name, "cadre_agent", TEAM / "helper.yaml", OTEL_EXPORTER_OTLP_ENDPOINT=nobody)
    assert service.terminate() == 0
    assert "the receiver" in service.log.read_text()


def test_without_a_reader_nothing_is_loaded(stack: Stack, gateway: Gateway) -> None:
    """But it is counted all the same; `off` does not even answer."""
    file = TEAM / "helper.yaml"
    service = stack.add("lazy", "cadre_agent", file, OTEL_METRICS_EXPORTER="none")
    assert service.process is not None
    small = resident(service.process.pid)
    assert total(scraped(service), "cadre_records_in_flight") == 0
    assert resident(service.process.pid) > small + 2_000_000, "what writes them was loaded by the look, not before"
    off = stack.add("off", "cadre_agent", file, CADRE_METRICS="off")
    assert httpx2.get(f"{off.url}/metrics").status_code == 404


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
