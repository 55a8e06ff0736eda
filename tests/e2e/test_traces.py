"""One trace per tree of runs, no matter who is killed while it grows: over a real team, a real receiver, kill -9."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams import jetstream
from cadre.journal.events import AnyEvent
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import root_span, trace_id
from harness.command import commands_of, run_demo
from harness.otlp_receiver import OtlpReceiver, Span
from harness.patience import eventually
from harness.people import decide, waiting
from harness.stack import Gateway, Stack
from harness.trace_verdict import duplicates, violations
from integration.tracer_world import with_bus

TEAM = Path(__file__).parent / "traced"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

CLIENT, PRODUCER, CONSUMER = 3, 4, 5
"""Kinds of spans, by their numbers in OTLP."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


@pytest.fixture(scope="module")
def stack(team: Path, receiver: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Every service knows the receiver, and a tracer is among them."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
        stack.model(team / "script.yaml")
        stack.add("tracer", "cadre_tracer", start=False)
        yield stack


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def events_of(stack: Stack, tree: str) -> dict[str, list[AnyEvent]]:
    """Return what the journals of the tree say, by run."""

    async def read(nc: Client, topology: Topology) -> dict[str, list[AnyEvent]]:
        history = History(nc, topology, NatsBlobs(nc, topology))
        found: dict[str, list[AnyEvent]] = {}
        for stored in await history.read_tree(tree):
            found.setdefault(stored.entry.run, []).extend(stored.entry.events)
        return found

    return with_bus(Settings(nats_url=stack.nats.url), read)


def traceparents(stack: Stack, tree: str) -> list[str]:
    """Return the headers of the messages about the tree that are on the bus."""

    async def read(nc: Client, topology: Topology) -> list[str]:
        stream = topology.stream_of(tree)
        state = (await jetstream.api(nc, f"STREAM.INFO.{stream}"))["state"]
        numbers = range(state["first_seq"], state["last_seq"] + 1)
        found = [one for n in numbers if (one := await jetstream.read(nc, stream, n)) is not None]
        about = [headers for message, headers in found if tree in message.subject]
        return [headers["traceparent"] for headers in about if "traceparent" in headers]

    return with_bus(Settings(nats_url=stack.nats.url), read)


def sound(stack: Stack, receiver: OtlpReceiver, run: str) -> list[Span]:
    """The run's spans, once its root has come, judged against its journals."""
    trace = trace_id(run)
    receiver.until(lambda: any(not span.parent for span in receiver.of_trace(trace)), f"the root of {run}")
    journals = events_of(stack, run)
    # The root's entry may be exported before that of a child in another batch.
    problems: list[str] = []

    def settled() -> bool:
        problems[:] = violations(_durable(receiver.of_trace(trace)), journals)
        return not problems

    eventually(settled, what="the trace is whole", state=lambda: problems)
    return receiver.of_trace(trace)


def _durable(spans: list[Span]) -> list[Span]:
    """Those that a journal reports; what a tool records on its own dies with it."""
    return [span for span in spans if names.RUN in span.attributes]


def of(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


# --- no one dies


def test_a_team_at_work_is_one_trace(stack: Stack, gateway: Gateway, receiver: OtlpReceiver, marks: Path) -> None:
    answer = gateway.request(
        "POST",
        "/v1/runs",
        json={"agent": "boss", "task": f"delegate: use keyed {marks} 0.1"},
        headers={"traceparent": CALLER},
    )
    run = answer.json()["id"]
    assert answer.headers["x-trace-id"] == trace_id(run)
    assert answer.headers["traceparent"] == f"00-{trace_id(run)}-{root_span(run)}-01"
    gateway.succeeded(run)
    spans = sound(stack, receiver, run)
    by_id = {span.span: span for span in spans}
    (root,) = of(spans, "invoke_workflow boss")
    assert {span.service for span in spans} >= {"boss", "worker", "helper", "keyed"}
    assert duplicates(spans) == 0
    for member in ("worker", "helper"):
        calling, called = sorted(of(spans, f"invoke_agent {member}"), key=lambda span: span.kind)
        assert (calling.kind, called.kind) == (CLIENT, CONSUMER)
        assert (called.parent, by_id[calling.parent].name) == (calling.span, "step 1")
    assert by_id[of(spans, "plan boss")[0].parent].name == "invoke_agent boss"
    # What the request did, linked both ways.
    receiver.until(
        lambda: any(span.name == "POST /v1/runs" for span in receiver.of_trace(CALLER[3:35])),
        "the request's own span",
    )
    (http,) = of(receiver.of_trace(CALLER[3:35]), "POST /v1/runs")
    assert (http.parent, http.service) == (CALLER[36:52], "gateway")
    assert http.links == [(trace_id(run), root_span(run))]
    assert root.links == [(http.trace, http.span)]
    # Anyone who polls fills no backend: reading has a span where its caller has one.
    for none in ({}, {"traceparent": "none"}, {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"}):
        gateway.request("GET", f"/v1/runs/{run}", headers=none)
    gateway.request("GET", f"/v1/runs/{run}", headers={"traceparent": CALLER})
    receiver.until(lambda: any(span.name.startswith("GET ") for span in receiver.spans), "the caller's look")
    assert {span.trace for span in receiver.spans if span.name.startswith("GET ")} == {CALLER[3:35]}


def test_a_caller_that_was_not_sampled_sends_nothing_of_its_run(
    stack: Stack, gateway: Gateway, receiver: OtlpReceiver, marks: Path
) -> None:
    """And all that travels about it says so: to the caller, on the bus, to tools."""
    unsampled = {"traceparent": f"{CALLER[:-2]}00"}
    request = {"agent": "boss", "task": f"delegate: use keyed {marks} 0.5"}
    answer = gateway.request("POST", "/v1/runs", json=request, headers=unsampled)
    run = answer.json()["id"]
    carried: list[str] = []
    eventually(marks.exists, what="the tool has begun")
    carried += traceparents(stack, run)
    gateway.succeeded(run)
    asked_again = gateway.request("POST", f"/v1/runs/{run}/cancel")
    own = [line.split()[2] for line in marks.read_text().splitlines()]
    carried += [answer.headers["traceparent"], asked_again.headers["traceparent"], *own]
    assert len(carried) > 4
    assert {(one[3:35], one[-2:]) for one in carried} == {(trace_id(run), "00")}
    gateway.succeeded(later := gateway.submit("boss", "delegate: think 0"))
    sound(stack, receiver, later)
    assert receiver.of_trace(trace_id(run)) == []
    shown = gateway.request("GET", f"/v1/runs/{run}/trace").json()
    assert shown["spans"], "what the journal has is there all the same"


def test_spans_of_a_tool_hang_below_its_call(
    stack: Stack, gateway: Gateway, receiver: OtlpReceiver, marks: Path
) -> None:
    run = gateway.submit("worker", f"use keyed {marks} 0.1")
    gateway.succeeded(run)
    spans = sound(stack, receiver, run)
    (own,), (call,) = of(spans, "my own work"), of(spans, "execute_tool keyed")
    assert (own.parent, own.service) == (call.span, "tools of mine")
    assert marks.read_text().split()[2] == f"00-{call.trace}-{call.span}-01", "and the tool can tell others"


# --- somebody dies


@pytest.mark.parametrize(
    ("victim", "task"),
    [
        ("worker", "think 3"),
        ("tools", "use keyed {marks} 1.5"),
        ("tools", "use effect {marks} 1.5"),
        ("tracer", "use keyed {marks} 1.5"),
        ("boss", "think 3"),
        ("gateway", "use keyed {marks} 1.5"),
    ],
)
def test_killed_in_the_middle(
    stack: Stack, gateway: Gateway, receiver: OtlpReceiver, marks: Path, victim: str, task: str
) -> None:
    run = gateway.submit("boss", f"delegate: {task.format(marks=marks)}")
    if "use" in task:
        eventually(marks.exists, what="the tool has begun")
    else:
        gateway.wait_for(run, "model.called", agent="worker")
    stack.services[victim].kill()
    stack.services[victim].start()
    gateway.succeeded(run)
    spans = sound(stack, receiver, run)
    if victim == "worker":
        lost = [span for span in spans if span.attributes.get(names.ERROR_TYPE) == names.WORKER_LOST]
        assert len(lost) == 1, "the attempt that died is seen"
    if victim == "tools" and "effect" in task:
        (call,) = of(spans, "execute_tool effect")
        assert (call.status, call.attributes[names.ERROR_TYPE]) == (2, "Interrupted")


def test_a_run_that_slept_and_woke_elsewhere_is_one_tree(
    stack: Stack, gateway: Gateway, receiver: OtlpReceiver, marks: Path
) -> None:
    """It waits for a person; everybody dies, and the receiver is away; others go on with it."""
    run = gateway.submit("boss", f"delegate: use refund {marks} 0")
    (held,) = waiting(gateway, run)
    receiver.stop()
    for name in ("worker", "boss", "tools", "tracer"):
        stack.services[name].kill()
    stack.start_all()
    assert decide(gateway, held["call"], "approved").status_code in (200, 202)
    gateway.succeeded(run)
    receiver.start()
    spans = sound(stack, receiver, run)
    (wait,) = of(spans, "wait_approval refund")
    assert len(wait.links) == 1, "to the request that decided"
    (call,) = of(spans, "execute_tool refund")
    assert wait.attributes[names.APPROVAL_OUTCOME] == "approved"
    assert wait.parent == call.parent
    assert call.start >= wait.end


# --- the whole stack ends


def test_a_demo_ends_when_its_trace_is_told(tmp_path: Path) -> None:
    """Its journals go with it: no one could tell the last spans, the root among them, later."""
    folder = shutil.copytree(TEAM, tmp_path / "team")
    files = "agents: [boss.yaml, worker.yaml, helper.yaml], tools: [tools.py], script: script.yaml"
    demo = f"demo: {{agent: boss, task: 'delegate: use keyed {tmp_path / 'marks'} 0'}}"
    head = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: traced}\n"
    (folder / "team.yaml").write_text(f"{head}spec: {{description: Is traced., {files}, {demo}}}\n")
    with OtlpReceiver() as receiver:
        run_demo(folder, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        (root,) = of(receiver.spans, "invoke_workflow boss")
        spans = _durable(receiver.of_trace(root.trace))
    known_spans = {span.span for span in spans}
    assert [span.name for span in spans if span.parent not in known_spans] == [root.name]
    names_of_spans = {span.name for span in spans}
    assert {f"invoke_agent {who}" for who in ("boss", "worker", "helper")} <= names_of_spans
    assert "process cadre.call.keyed" in names_of_spans


# --- without any backend


def test_a_trace_without_a_backend(gateway: Gateway, marks: Path) -> None:
    run = gateway.submit("boss", f"delegate: use refund {marks} 0")
    (held,) = waiting(gateway, run)
    going = gateway.request("GET", f"/v1/runs/{run}/trace").json()
    still = {span["name"] for span in going["spans"] if span.get("open")}
    assert {"invoke_workflow boss", "wait_approval refund"} <= still
    assert decide(gateway, held["call"], "approved").status_code == 200
    gateway.succeeded(run)
    found = gateway.request("GET", f"/v1/runs/{run}/trace").json()
    assert (found["trace"], found["spans"][0]["name"]) == (trace_id(run), "invoke_workflow boss")
    assert not any(span.get("open") for span in found["spans"])
    otlp = gateway.request("GET", f"/v1/runs/{run}/trace", params={"format": "otlp"}).json()
    spans = [s for r in otlp["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]
    assert {s["spanId"] for s in spans if s["kind"] != PRODUCER} == {s["span"] for s in found["spans"]}
    page = gateway.request("GET", f"/v1/runs/{run}/trace", params={"format": "html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    child = gateway.request("GET", f"/v1/runs/{run}_1_0/trace").json()
    assert child["spans"][0]["name"] == "invoke_agent worker"
    wrong = gateway.request("GET", f"/v1/runs/{run}/trace", params={"format": "gif"})
    assert wrong.status_code == 422
    assert gateway.request("GET", "/v1/runs/nobody/trace").status_code == 404


def test_the_command_shows_it(stack: Stack, gateway: Gateway, marks: Path, tmp_path: Path) -> None:
    run = gateway.submit("boss", f"delegate: use keyed {marks} 0")
    gateway.succeeded(run)
    cadre = commands_of(stack, tmp_path)
    shown = cadre("trace", run)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"invoke_workflow boss  \S+, \S+ tokens", shown.stdout)
    assert re.search(r"chat scripted  \S+, \S+ \+ \S+ tokens", shown.stdout)
    assert "execute_tool keyed" in shown.stdout
    assert json.loads(cadre("trace", run, "-o", "otlp").stdout)["resourceSpans"]
    assert cadre("trace", run, "-o", "html").stdout.startswith("<!doctype html>")
    missing = cadre("trace", "nobody")
    assert missing.returncode == 4
