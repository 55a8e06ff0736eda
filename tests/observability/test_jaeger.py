"""Runs of several kinds, with kills, through the shipped Collector into a real Jaeger, held against the journals."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from alerts.prometheus_process import watching
from alerts.world import quick_to_forget, sending_to
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.reading.history import History
from cadre.settings import Settings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from harness.patience import eventually, patience
from harness.people import waiting
from harness.stack import Gateway, Stack
from integration.tracer_world import with_bus
from observability.programs import ROOT, Collector, Jaeger, attributes_of, edges_of
from observe.demo import run_demo

EDGES_OF_APOLLO = {
    *(("manager", member) for member in ("researcher", "analyst", "statistician")),
    ("researcher", "checker"),
    *(("researcher", tool) for tool in ("search_documents", "read_document")),
    *(("analyst", tool) for tool in ("aggregate", "rank_by_ratio", "select_rows")),
    ("checker", "check_statement"),
    *(("statistician", called) for called in ("select_rows", "sandbox")),
}
"""Of its demo."""

TEAM = ROOT / "tests" / "e2e" / "traced"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    one = Jaeger(tmp_path_factory.mktemp("jaeger"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def collector(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    one = Collector(tmp_path_factory.mktemp("collector"), jaeger.otlp)
    one.start()
    yield one
    one.stop()


def stack_at(folder: Path, collector: Collector, **environment: str) -> Stack:
    stack = Stack(folder)
    stack.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environment}
    return stack


def team_of(stack: Stack) -> Gateway:
    (prices := stack.folder / "prices.yaml").write_text("scripted: {input: 1000, output: 1000}\n")
    stack.environment["CADRE_PRICES"] = str(prices)
    stack.model(TEAM / "script.yaml")
    stack.add("tracer", "cadre_tracer", start=False)
    for name in ("boss", "worker", "helper"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    gateway = stack.gateway(start=False)
    stack.start_all()
    gateway.wait_offered(3)
    return gateway


@pytest.fixture(scope="module")
def stack(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack_at(tmp_path_factory.mktemp("stack"), collector) as one:
        yield one


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    return team_of(stack)


def told(stack: Stack, run: str) -> list[SpanRecord]:
    """Return the spans that the journals of a tree make."""

    async def read(nc: Any, topology: Any) -> list[SpanRecord]:
        stored = await History(nc, topology, NatsBlobs(nc, topology)).read_tree(run)
        return [span for span in trace_of((one.entry for one in stored), now=0.0) if not span.open]

    return with_bus(Settings(nats_url=stack.nats.url), read)


def shown(jaeger: Jaeger, stack: Stack, run: str) -> list[dict[str, Any]]:
    """Return the run's spans in Jaeger, once all that its journals tell of are there: the tools' own ones left out."""
    wanted = {span.span for span in told(stack, run)}
    eventually(
        lambda: wanted <= {span["spanId"] for span in jaeger.trace(trace_id(run))},
        what=f"Jaeger has the trace of {run}",
    )
    return [span for span in jaeger.trace(trace_id(run)) if span["spanId"] in wanted]


def agree(jaeger: Jaeger, stack: Stack, run: str) -> None:
    """Roots, orphans, counts, durations, tokens and cost."""
    journal = told(stack, run)
    spans = shown(jaeger, stack, run)
    assert len(spans) == len(journal), "none twice"
    ids = {span["spanId"] for span in spans}
    assert [span["name"] for span in spans if not span.get("parentSpanId")] == [
        span.name for span in journal if span.parent is None
    ]
    assert all(span["parentSpanId"] in ids for span in spans if span.get("parentSpanId"))
    assert Counter(span["name"] for span in spans) == Counter(span.name for span in journal)
    times = {span["spanId"]: (span["startTimeUnixNano"], span["endTimeUnixNano"]) for span in spans}
    assert times == {span.span: (str(span.start), str(span.end)) for span in journal}
    for name in (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.COST):
        there = sum(float(attributes_of(span).get(name, 0)) for span in spans)
        here = sum(float(str(span.attributes.get(name, 0))) for span in journal)
        assert there == pytest.approx(here)
        assert here > 0


def test_a_team_at_work(jaeger: Jaeger, stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    run = gateway.submit("boss", f"delegate: use keyed {tmp_path / 'marks'} 0.1")
    gateway.succeeded(run)
    agree(jaeger, stack, run)
    chats = [span for span in shown(jaeger, stack, run) if span["name"].startswith("chat ")]
    for span in chats:
        about = attributes_of(span)
        assert about[names.SERVER_ADDRESS] == "127.0.0.1"
        assert about[names.RESPONSE_ID]
        assert span["resource"]["service.instance.id"]


def test_who_asks_whom(jaeger: Jaeger, stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    run = gateway.submit("boss", f"delegate: use keyed {tmp_path / 'marks'} 0.1")
    gateway.succeeded(run)
    edges = edges_of(shown(jaeger, stack, run))
    assert edges == {("boss", "worker"), ("boss", "helper"), ("worker", "keyed")}
    assert edges <= jaeger.asks()


def test_who_asks_whom_in_the_shipped_team(jaeger: Jaeger, tmp_path: Path) -> None:
    def has_root(trace: str) -> bool:
        return any(not span.get("parentSpanId") for span in jaeger.trace(trace))

    trace = run_demo(tmp_path, jaeger.http, "", has_root)
    edges = edges_of(jaeger.trace(trace))
    assert edges == EDGES_OF_APOLLO
    assert edges <= jaeger.asks()


@pytest.mark.parametrize("victim", ["worker", "tools", "tracer", "boss", "gateway"])
def test_somebody_is_killed(jaeger: Jaeger, stack: Stack, gateway: Gateway, tmp_path: Path, victim: str) -> None:
    marks = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use keyed {marks} 1.5")
    eventually(marks.exists, what="the tool has begun")
    stack.services[victim].kill()
    stack.services[victim].start()
    gateway.succeeded(run)
    agree(jaeger, stack, run)


def test_the_collector_is_killed_while_jaeger_is_away(
    jaeger: Jaeger, collector: Collector, stack: Stack, gateway: Gateway
) -> None:
    """The Collector keeps in its file all that it has acknowledged."""
    collector.stop()
    collector.send_to("127.0.0.1:9")
    collector.start()
    run = gateway.submit("boss", "delegate: think 0")
    gateway.succeeded(run)
    # It goes once the Collector has all that the journals hold.
    assert stack.services["tracer"].terminate() == 0
    collector.kill()
    collector.send_to(jaeger.otlp)
    collector.start()
    agree(jaeger, stack, run)
    stack.services["tracer"].start()


def test_a_full_queue_of_the_collector_refuses_and_loses_nothing(
    jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The refusal reaches the tracer, and one alert fires: the one that says that spans wait."""
    folder = tmp_path_factory.mktemp("full")
    full = quick_to_forget(Collector(folder, "127.0.0.1:9"))
    full.config["exporters"]["otlp_grpc/tempo"]["sending_queue"] |= {"queue_size": 2, "num_consumers": 1}
    full.configure(full.config)
    full.start()
    try:
        with stack_at(folder, full, **sending_to(full)) as stack:
            gateway = team_of(stack)
            runs: list[str] = []

            def refused() -> bool:
                runs.append(gateway.submit("helper", "say hello"))
                gateway.succeeded(runs[-1])
                about = httpx2.get(f"{stack.services['tracer'].url}/readyz", timeout=patience()).json()
                return "does not take" in about["receiver"]

            eventually(refused, what="the Collector refuses spans")
            with watching(stack, full) as watchers:
                watchers.see('{__name__=~"otelcol_exporter_enqueue_failed_spans(_total)?"} > 0')
                watchers.fires("CadreTraceReceiverDown")
                # What is cut short here is late with 20 entries, which a slow machine may have by then.
                firing = {way: names - {"CadreTracesLate"} for way, names in watchers.firing().items()}
                assert firing == {way: {"CadreTraceReceiverDown"} for way in watchers.ways}
                full.kill()
                full.send_to(jaeger.otlp)
                full.start()
                for run in runs:
                    agree(jaeger, stack, run)
                watchers.over("CadreTraceReceiverDown")
                assert not any("CollectorDropsSpans" in names for names in watchers.firing().values())
    finally:
        full.stop()


def test_a_run_that_waits_for_a_person_is_kept_by_its_error(
    jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`tail_sampling` decides two seconds after a trace's first span; whole trees come at once. Their content is sent,
    and the Collector drops it."""
    policies = [{"name": "errors", "type": "status_code", "status_code": {"status_codes": ["ERROR"]}}]
    folder = tmp_path_factory.mktemp("sampled")
    sampling = Collector(folder, jaeger.otlp, decision_wait="2s", policies=policies)
    sampling.start()
    try:
        content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        with stack_at(folder, sampling, CADRE_TRACES_SEND="ended", **content) as stack:
            gateway = team_of(stack)
            fine = gateway.submit("helper", "say hello")
            gateway.succeeded(fine)
            run = gateway.submit("boss", f"delegate: use refund {folder / 'marks'} 0")
            waiting(gateway, run)
            assert jaeger.trace(trace_id(run)) == []
            gateway.request("POST", f"/v1/runs/{run}/cancel", json={"reason": "the canary is dead"})
            assert gateway.finished(run)["state"] == "cancelled"
            agree(jaeger, stack, run)
            here = gateway.request("GET", f"/v1/runs/{run}/trace", params={"format": "otlp"}).text
            there = json.dumps(jaeger.trace(trace_id(run)))
            for text in ("delegate: use refund", "the canary is dead"):
                assert text in here
                assert text not in there
            failed = [span for span in shown(jaeger, stack, run) if span["status"].get("message")]
            assert failed
            assert all(span["status"]["message"] == attributes_of(span)[names.ERROR_TYPE] for span in failed)
            assert jaeger.trace(trace_id(fine)) == [], "nothing is wrong with it"
    finally:
        sampling.stop()
