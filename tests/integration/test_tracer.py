"""The tracer against a real receiver: what arrives, what is never lost, what never comes in two forms."""

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from nats.aio.client import Client

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.reading.history import History, NatsArchive
from cadre.delivery.codec import encode
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.protocol.messages import Erased
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import root_span, trace_id
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.projection import Projection
from harness.otlp_receiver import OtlpReceiver, Span
from harness.patience import eventually
from harness.stack import Service
from harness.trace_verdict import differing, duplicates
from integration.tracer_world import left_to_do, tracer, with_bus, write
from unit.loop.build import ANSWER, SimulatedRun, call, report, result
from unit.tracing.test_trace_content import CANARY, calling

Start = Callable[..., Service]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


@pytest.fixture
def start(settings: Settings, receiver: OtlpReceiver, tmp_path: Path) -> Iterator[Start]:
    """Starts a tracer, and ends all that were started."""
    started: list[Service] = []

    def begin(**options: str) -> Service:
        service = tracer(settings, receiver.url, tmp_path, f"tracer-{len(started)}", **options)
        service.start()
        started.append(service)
        return service

    yield begin
    for service in started:
        if service.is_running:
            service.kill()


def team(root: str) -> list[Entry]:
    """The journals of a tree of three runs, in the order in which they would be written."""
    boss = SimulatedRun(run=root).begin()
    boss.say(call("kid", task="one"), call("add", a=1, b=2), call("kid", task="two"))
    children = [SimulatedRun(run=boss.id(place)).begin(parent=root) for place in (0, 2)]
    boss.arrive(result(boss.id(1), 3, executor="here-7", started_at=1.5))
    for place, child in zip((0, 2), children, strict=True):
        child.lose()
        child.say(ANSWER)
        boss.arrive(report(boss.id(place), "done"))
    boss.say(ANSWER)
    head, tail = boss.journal()[:2], boss.journal()[2:]
    return [*head, *(entry for child in children for entry in child.journal()), *tail]


def expected(entries: list[Entry]) -> set[str]:
    return {span.span for span in trace_of(entries, now=0.0)}


def ending(entries: list[Entry]) -> int:
    """Return how many of them end a span; the others have nothing to wait for."""
    runs = {entry.run: Projection(entry.tree, entry.run) for entry in entries}
    return sum(bool(runs[entry.run].apply(entry)) for entry in entries)


def whole(receiver: OtlpReceiver, *trees: list[Entry]) -> None:
    """Waits until every span of these journals has arrived."""
    wanted = set[str]().union(*(expected(entries) for entries in trees))
    receiver.until(lambda: wanted <= {span.span for span in receiver.spans}, "all spans")


def acked(settings: Settings) -> None:
    eventually(lambda: left_to_do(settings) == 0, what="all entries are acked")


def roots(spans: list[Span]) -> list[str]:
    return [span.name for span in spans if not span.parent]


def test_what_arrives_of_a_run(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    entries = team("a1")
    write(settings, entries)
    attributes = ("deployment.environment=test", "service.namespace=shop", "service.name=not-this")
    start(OTEL_EXPORTER_OTLP_COMPRESSION="gzip", OTEL_RESOURCE_ATTRIBUTES=",".join(attributes))
    whole(receiver, entries)
    acked(settings)
    spans = receiver.spans
    assert {span.trace for span in spans} == {trace_id("a1")}
    assert roots(spans) == ["invoke_workflow boss"]
    assert duplicates(spans) == 0
    work = next(span for span in spans if span.name.startswith("process"))
    assert work.resource == {
        "service.name": "add",
        "service.namespace": "shop",
        "service.instance.id": "here-7",
        "deployment.environment": "test",
    }
    lost = [span for span in spans if span.attributes.get(names.ERROR_TYPE) == names.WORKER_LOST]
    assert [(span.status, span.message) for span in lost] == [(2, "worker_lost")] * 2
    assert {span.service for span in spans} == {"boss", "add"}


def test_spans_come_while_the_run_goes_on(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    """Each with the entry that reports its end; the root last."""
    start()
    entries = team("a1")
    seqs = write(settings, entries[:2])
    receiver.until(lambda: bool(receiver.spans), "the first span")
    assert roots(receiver.spans) == []
    write(settings, entries[2:], seqs)
    whole(receiver, entries)
    assert roots(receiver.spans) == ["invoke_workflow boss"]
    assert duplicates(receiver.spans) == 0


def test_a_receiver_that_fails_for_a_while_loses_nothing(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    receiver.fail(3)
    entries = team("a1")
    write(settings, entries)
    start()
    whole(receiver, entries)
    acked(settings)
    assert receiver.refused == 3
    assert duplicates(receiver.spans) == 0


def test_runs_end_while_nobody_listens_and_their_traces_come_later(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    receiver.stop()
    one = start()
    trees = [team(f"a{n}") for n in range(20)]
    write(settings, itertools.chain(*trees))
    one.kill()
    other = start()
    ends_something = sum(ending(entries) for entries in trees)
    assert left_to_do(settings) >= ends_something, "nothing is acked that the receiver does not have"
    receiver.start()
    whole(receiver, *trees)
    acked(settings)
    assert len(roots(receiver.spans)) == 20
    assert duplicates(receiver.spans) == 0
    assert other.is_running


def test_killed_between_the_receivers_answer_and_the_ack(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    """The one window: the receiver has the spans and the journals do not know. They come again, byte for byte."""
    receiver.fall_silent(taking=True)
    entries = team("a1")
    write(settings, entries)
    one = start()
    receiver.until(lambda: bool(receiver.spans), "the spans, without an answer")
    one.kill()
    receiver.stop()
    receiver.start()
    start()
    acked(settings)
    whole(receiver, entries)
    assert duplicates(receiver.spans) > 0
    assert differing(receiver.spans) == []
    assert set(roots(receiver.spans)) == {"invoke_workflow boss"}


def test_a_tree_is_sent_whole_once_it_has_ended(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    """Its root first, even after the tracer was killed before it had sent all of it."""
    entries = team("a1")
    service = start(CADRE_TRACES_SEND="ended")
    seqs = write(settings, entries[:-1])
    acked(settings)
    assert receiver.spans == []
    service.kill()
    receiver.stop()
    second = start(CADRE_TRACES_SEND="ended")
    write(settings, entries[-1:], seqs)
    eventually(lambda: "has a problem" in second.log.read_text(), what="it could not send the tree")
    second.kill()
    receiver.start()
    start(CADRE_TRACES_SEND="ended")
    whole(receiver, entries)
    acked(settings)
    spans = receiver.spans
    assert spans[0].name == "invoke_workflow boss"
    assert (duplicates(spans), len(spans)) == (0, len(expected(entries)))


def test_a_caller_that_was_not_sampled_decides_for_the_whole_tree(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    def asked(root: str, flags: str) -> list[Entry]:
        first, *others = team(root)
        (accepted, *more) = first.events
        assert isinstance(accepted, RunAccepted)
        task = msgspec.structs.replace(accepted.task, trace=f"00-{'1' * 32}-{'2' * 16}-{flags}")
        return [
            msgspec.structs.replace(first, events=[msgspec.structs.replace(accepted, task=task), *more]),
            *others,
        ]

    start()
    unsampled, taken = asked("b1", "00"), asked("b2", "01")
    write(settings, [*unsampled, *taken])
    whole(receiver, taken)
    acked(settings)
    assert {span.trace for span in receiver.spans} == {trace_id("b2")}


def test_two_tracers_share_the_work(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    """Each folds what the other was given as well, and neither sends what is not its own."""
    start()
    start()
    trees = [team(f"a{n}") for n in range(30)]
    write(settings, itertools.chain(*trees))
    whole(receiver, *trees)
    acked(settings)
    assert duplicates(receiver.spans) == 0


@pytest.mark.parametrize("silent", [False, True], ids=["nobody there", "no answer"])
def test_it_stops_in_time_when_the_receiver_is_dead(
    settings: Settings, receiver: OtlpReceiver, start: Start, silent: bool
) -> None:
    if silent:
        receiver.fall_silent()
    else:
        receiver.stop()
    write(settings, team("a1"))
    one = start()
    if silent:
        receiver.until(lambda: receiver.refused > 0, "a request")
    else:
        eventually(lambda: "has a problem" in one.log.read_text(), what="it has tried")
    began = time.monotonic()
    assert one.terminate() == 0
    assert time.monotonic() - began < 15, "the grace period is 5 s, on a busy machine"
    receiver.stop()
    receiver.start()
    start()
    acked(settings)
    whole(receiver, team("a1"))
    assert duplicates(receiver.spans) == 0


def test_what_was_journaled_is_told_before_it_stops(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    """Its journals may be removed next: it comes for what it has not even looked at."""
    one = start()
    trees = [team(f"a{n}") for n in range(5)]
    write(settings, itertools.chain(*trees))
    assert one.terminate() == 0
    wanted = set[str]().union(*map(expected, trees))
    assert wanted == {span.span for span in receiver.spans}
    assert left_to_do(settings) == 0
    assert duplicates(receiver.spans) == 0


def test_no_content_goes_out_unless_it_is_asked_for(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    entries = calling().journal()
    write(settings, entries)
    one = start()
    whole(receiver, entries)
    one.kill()
    # What a model called its call is not content; the canary is in everything else that was written.
    named = f"execute_tool {CANARY}".encode()
    told = b"".join(receiver.requests).replace(named, b"")
    assert told.count(CANARY.encode()) == 2, "the name of that tool, as two attributes"


def test_content_goes_out_when_it_is_asked_for(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    entries = calling().journal()
    write(settings, entries)
    start(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY")
    whole(receiver, entries)
    root = next(span for span in receiver.spans if not span.parent)
    assert (root.attributes[names.INPUT_VALUE], root.attributes[names.OUTPUT_VALUE]) == (CANARY, CANARY)
    chats = [span for span in receiver.spans if span.attributes.get(names.OPERATION) == names.CHAT]
    for attribute in (names.SYSTEM_INSTRUCTIONS, names.INPUT_MESSAGES):
        assert all(CANARY in span.attributes[attribute] for span in chats)


def test_spans_that_the_receiver_refuses_hold_nobody_up(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    """The batch is refused, then one entry of it: the others arrive."""
    receiver.fail(2, status=400)
    entries = team("a1")
    write(settings, entries)
    one = start()
    acked(settings)
    arrived = {span.span for span in receiver.spans}
    assert arrived < expected(entries)
    assert root_span("a1") in arrived
    assert re.search(r"ERROR cadre\S*: \d+ .*\ba1\b", one.log.read_text())


@pytest.mark.parametrize("in_json", [False, True])
def test_spans_that_the_receiver_rejects_of_a_request_count_as_refused(
    settings: Settings, receiver: OtlpReceiver, start: Start, in_json: bool
) -> None:
    receiver.in_json = in_json
    receiver.partial = (1, "too old")
    entries = team("a1")
    write(settings, entries)
    one = start()
    acked(settings)
    whole(receiver, entries)
    about = httpx.get(f"{one.url}/readyz").json()
    sent = len(receiver.spans)
    assert (about["refused"], about["exported"]) == (
        str(len(receiver.requests)),
        str(sent - len(receiver.requests)),
    )
    assert "ERROR" in one.log.read_text()
    assert "too old" in one.log.read_text(), "the receiver's own words"


def test_a_receiver_that_asks_for_time_gets_it(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    receiver.headers = {"Retry-After": "3"}
    receiver.fail(1, status=429)
    entries = team("a1")
    write(settings, entries)
    start(OTEL_EXPORTER_OTLP_TIMEOUT="1")
    whole(receiver, entries)
    acked(settings)
    first, second, *_ = receiver.times
    assert second - first >= 3


@pytest.mark.parametrize("asked", [False, True])
def test_imported_runs_are_not_told_again(
    settings: Settings, receiver: OtlpReceiver, tmp_path: Path, asked: bool
) -> None:
    """Their events happened elsewhere, and have been exported there."""
    entries = team("a1")

    async def bring(nc: Client, topology: Topology) -> None:
        blobs = NatsBlobs(nc, topology)
        archive = NatsArchive(nc, topology, blobs, History(nc, topology, blobs))
        fences: dict[str, int] = {}
        for entry in entries:
            fence = fences.get(entry.run, 0)
            fences[entry.run] = await archive.append("a1", entry.run, encode(entry), fence)

    with_bus(settings, bring)
    own = team("a2")
    write(settings, own)
    one = tracer(settings, receiver.url, tmp_path)
    one._arguments += ["--imported"] if asked else []
    one.start()
    try:
        whole(receiver, own)
        acked(settings)
    finally:
        one.kill()
    assert bool(receiver.of_trace(trace_id("a1"))) is asked


def test_an_erased_tree_is_not_told(settings: Settings, receiver: OtlpReceiver, start: Start) -> None:
    """Erased while its entries were in the tracer's hands: what is left of it goes nowhere, and holds no one up."""
    write(settings, team("a1"))

    async def erase(nc: Client, topology: Topology) -> None:
        erasure = NatsErasure(nc, topology, NatsBlobs(nc, topology))
        lifecycle = Erased(id="a1:erased", tree="a1", run="a1", at=time.time())
        seq = await erasure.record(lifecycle, 0)
        # As one that was cut short leaves it: the first entries are gone, the last is not.
        await erasure.purge("a1", seq - 1)

    with_bus(settings, erase)
    own = team("a2")
    write(settings, own)
    start()
    whole(receiver, own)
    acked(settings)
    assert receiver.of_trace(trace_id("a1")) == []


def test_a_tree_that_is_erased_while_the_receiver_has_trouble_is_not_told(
    settings: Settings, receiver: OtlpReceiver, start: Start
) -> None:
    receiver.fail(1000)
    write(settings, itertools.chain(team("a1"), team("a2")))
    start()
    receiver.until(lambda: receiver.refused > 0, "a request")

    async def erase(nc: Client, topology: Topology) -> None:
        erasure = NatsErasure(nc, topology, NatsBlobs(nc, topology))
        lifecycle = Erased(id="a1:erased", tree="a1", run="a1", at=time.time())
        await erasure.purge("a1", await erasure.record(lifecycle, 0))

    with_bus(settings, erase)
    # With the pauses between them these take longer than spans wait without a look at their tree.
    receiver.until(lambda: receiver.refused > 12, "many requests")
    receiver.stop()
    receiver.start()
    whole(receiver, team("a2"))
    acked(settings)
    assert receiver.of_trace(trace_id("a1")) == []


def test_without_a_receiver_it_says_what_to_set() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cadre_tracer"], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in line
