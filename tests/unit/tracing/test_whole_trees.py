"""Trees that are sent when they have ended: what leaves with which entry, and which trees are sent at all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from cadre.adapters.nats.reading.history import History
from cadre.errors import BusUnavailable, SettingError
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.settings import TracingSettings, read_tracing_settings
from cadre.telemetry.tracing import names, spans
from cadre.telemetry.tracing.ids import handed_down, root_span, sampled, samples, trace_id, traceparent_of
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord, link_to
from cadre_tracer.trees import Sampling, WholeTrees
from unit.loop.build import ANSWER, SimulatedRun, call, cancel, report, result

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


class Journals:
    """A stream that holds these entries, of one tree."""

    def __init__(self, entries: list[Entry]) -> None:
        self.stored = [Stored(3 * n, entry) for n, entry in enumerate(entries, start=1)]
        self.lag = 0
        """Entries at the end that no replica shows yet."""
        self.firsts = 0

    async def pages(self, tree: str, after: int = 0, *, at_least: int = 0) -> AsyncIterator[list[Stored]]:
        shown = [one for one in self.stored if one.seq > after][: len(self.stored) - self.lag]
        for at in range(0, len(shown), 3):
            yield shown[at : at + 3]

    async def first(self, tree: str, run: str) -> Stored | None:
        self.firsts += 1
        return next((one for one in self.stored if one.entry.run == run), None)


def team() -> list[Entry]:
    boss = SimulatedRun(run="a1").begin()
    boss.say(call("kid", task="one"), call("add", a=1, b=2))
    child = SimulatedRun(run=boss.id(0)).begin(parent="a1")
    child.lose()
    child.say(ANSWER)
    boss.arrive(result(boss.id(1), 3, executor="here-7", started_at=1.5))
    boss.arrive(report(boss.id(0), "done"))
    boss.say(ANSWER)
    return [*boss.journal()[:2], *child.journal(), *boss.journal()[2:]]


def cancelled() -> list[Entry]:
    """A tree whose member is cancelled after the root has ended."""
    boss = SimulatedRun(run="a1").begin()
    boss.say(call("kid", task="one"))
    child = SimulatedRun(run=boss.id(0)).begin(parent="a1")
    boss.arrive(cancel())
    started = len(child.journal())
    child.arrive(cancel())
    journal = child.journal()
    return [*boss.journal()[:2], *journal[:started], *boss.journal()[2:], *journal[started:]]


def aged(entries: list[Entry], seconds: float) -> list[Entry]:
    """The same entries with so much time between each two."""
    return [msgspec.structs.replace(one, at=1000.0 + seconds * n) for n, one in enumerate(entries)]


def sent_with(journals: Journals, *, afresh: bool = False) -> list[list[SpanRecord]]:
    """Return the spans sent with each entry: by one tracer, or `afresh` by another one each time."""

    async def follow() -> list[list[SpanRecord]]:
        found: list[list[SpanRecord]] = []

        async def send(spans: list[SpanRecord]) -> None:
            found[-1] += spans

        trees = WholeTrees(cast("History", journals), send, content=False)
        for stored in journals.stored:
            if afresh:
                trees = WholeTrees(cast("History", journals), send, content=False)
            found.append([])
            await trees.take(stored, patient=True)
        return found

    return asyncio.run(follow())


def ended(entries: list[Entry]) -> list[SpanRecord]:
    return [span for span in trace_of(entries, now=0.0) if not span.open]


def plain(span: SpanRecord) -> SpanRecord:
    attributes = {key: value for key, value in span.attributes.items() if key != names.TRACE_PART}
    return msgspec.structs.replace(span, attributes=attributes)


def by_id(spans: list[SpanRecord]) -> list[bytes]:
    return sorted(msgspec.json.encode(plain(span)) for span in spans)


@pytest.mark.parametrize("afresh", [False, True])
@pytest.mark.parametrize("entries", [team(), cancelled()], ids=["team", "cancelled"])
def test_a_tree_leaves_with_its_last_entry_root_first(entries: list[Entry], afresh: bool) -> None:
    *before, last = sent_with(Journals(entries), afresh=afresh)
    assert not any(before)
    assert (last[0].name, last[0].parent) == ("invoke_workflow boss", None)
    assert by_id(last) == by_id(ended(entries))
    assert not any(names.TRACE_PART in span.attributes for span in last)


@pytest.mark.parametrize("afresh", [False, True])
def test_a_tree_that_goes_on_for_days_leaves_in_numbered_parts(afresh: bool) -> None:
    entries = aged(team(), spans.PART_SECONDS * 0.4)
    parts = [spans for spans in sent_with(Journals(entries), afresh=afresh) if spans]
    assert len(parts) > 1
    assert by_id([span for spans in parts for span in spans]) == by_id(ended(entries))
    numbers = [{span.attributes[names.TRACE_PART] for span in spans} for spans in parts]
    assert all(len(some) == 1 for some in numbers)
    assert [max(some) for some in numbers] == sorted({max(some) for some in numbers})
    assert parts[-1][0].parent is None


def test_a_run_of_many_entries_leaves_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "PART_ENTRIES", 3)
    entries = team()
    parts = [spans for spans in sent_with(Journals(entries)) if spans]
    assert len(parts) > 1
    assert by_id([span for spans in parts for span in spans]) == by_id(ended(entries))


def test_what_comes_after_the_end_of_a_tree_is_a_part_too() -> None:
    """A member that no one ran took its task and its cancellation up later."""
    boss = SimulatedRun(run="a1").begin()
    boss.say(call("kid", task="one"))
    boss.arrive(cancel())
    child = SimulatedRun(run=boss.id(0)).begin(parent="a1")
    child.arrive(cancel())
    entries = [*boss.journal(), *child.journal()]
    first, second = [spans for spans in sent_with(Journals(entries)) if spans]
    assert not any(names.TRACE_PART in span.attributes for span in first)
    assert {span.attributes[names.TRACE_PART] for span in second} == {2}
    assert by_id(first + second) == by_id(ended(entries))


def test_it_waits_for_entries_that_no_replica_shows_yet() -> None:
    journals = Journals(team())
    journals.lag = 1

    async def take_last() -> None:
        async def send(spans: list[SpanRecord]) -> None:
            raise AssertionError(spans)

        await WholeTrees(cast("History", journals), send, content=False).take(journals.stored[-1], patient=True)

    with pytest.raises(BusUnavailable):
        asyncio.run(take_last())


def test_an_entry_that_ends_nothing_reads_nothing() -> None:
    """One that follows a long tree does not read it again with each entry."""
    journals = Journals(team())
    reads: list[int] = []
    pages = journals.pages

    def counted(tree: str, after: int = 0, *, at_least: int = 0) -> Any:
        reads.append(after)
        return pages(tree, after, at_least=at_least)

    journals.pages = counted  # type: ignore[method-assign]
    sent_with(journals)
    finished = 2  # runs; the tree is read twice more to be sent
    assert len(reads) == finished + 2
    assert reads[1] > 0


def task(trace: str | None) -> Task:
    first = SimulatedRun(run="a1").begin().journal()[0]
    found = next(event.task for event in first.events if isinstance(event, RunAccepted))
    return msgspec.structs.replace(found, trace=trace)


@pytest.mark.parametrize(
    ("sampler", "trace", "taken"),
    [
        ("parentbased_always_on", None, True),
        ("parentbased_always_on", CALLER + "00", False),
        ("parentbased_always_on", CALLER + "01", True),
        ("parentbased_always_off", None, False),
        ("parentbased_always_off", CALLER + "01", True),
        ("parentbased_always_on", "nonsense", True),
        ("always_on", CALLER + "00", True),
        ("always_off", CALLER + "01", False),
    ],
)
def test_whom_a_sampler_asks(sampler: str, trace: str | None, taken: bool) -> None:
    assert samples(TracingSettings(sampler=sampler), "a1", trace) is taken


def test_a_ratio_takes_its_share_by_the_trace_id() -> None:
    settings = TracingSettings(sampler="traceidratio", sampler_ratio=0.25)
    trees = [f"tree{n}" for n in range(2000)]
    taken = [tree for tree in trees if samples(settings, tree, None)]
    assert 400 < len(taken) < 600
    assert all(int(trace_id(tree)[16:], 16) < 2**62 for tree in taken)
    more = TracingSettings(sampler="parentbased_traceidratio", sampler_ratio=0.5)
    assert all(samples(more, tree, None) for tree in taken)
    assert samples(more, taken[0], CALLER + "00") is False


@pytest.mark.parametrize(
    ("sampler", "asked", "link"),
    [
        ("parentbased_always_on", None, None),
        ("parentbased_always_on", CALLER + "01", CALLER + "01"),
        ("parentbased_always_on", CALLER + "00", CALLER + "00"),
        ("always_on", CALLER + "00", None),
        ("always_off", CALLER + "01", CALLER + "00"),
    ],
)
def test_a_root_task_carries_the_decision_for_its_tree(sampler: str, asked: str | None, link: str | None) -> None:
    settings = TracingSettings(sampler=sampler)
    assert handed_down(settings, "a1", asked) == link
    work = msgspec.structs.replace(task(asked), trace=handed_down(settings, "a1", asked))
    assert sampled(traceparent_of(work)) is samples(settings, "a1", asked)


def test_a_tree_without_a_request_carries_the_decision_too() -> None:
    trace = handed_down(TracingSettings(sampler="always_off"), "a1", None)
    assert trace == f"00-{trace_id('a1')}-{root_span('a1')}-00"
    assert samples(TracingSettings(), "a1", trace) is False


def test_a_member_follows_the_root_of_its_tree() -> None:
    entries = team()
    entries[0] = msgspec.structs.replace(
        entries[0],
        events=[
            msgspec.structs.replace(e, task=task(CALLER + "00")) if hasattr(e, "task") else e for e in entries[0].events
        ],
    )
    journals = Journals(entries)
    child = next(one.entry for one in journals.stored if one.entry.run != "a1")
    sampling = Sampling(cast("History", journals), TracingSettings())
    assert asyncio.run(sampling.takes(child)) is False
    assert asyncio.run(sampling.takes(journals.stored[-1].entry)) is False
    assert journals.firsts == 1


def test_nothing_links_to_a_span_that_is_not_sent() -> None:
    assert link_to(CALLER + "00") == []
    assert len(link_to(CALLER + "01")) == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan"),
        ("OTEL_TRACES_SAMPLER_ARG", "a tenth"),
        ("CADRE_TRACES_SEND", "later"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingError, match=f"{variable}={value}"):
        read_tracing_settings()
