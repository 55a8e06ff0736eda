"""Spans of what a run does besides its steps: it remembers, it makes room in its context."""

from cadre.journal import events as ev
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.run import Memory
from cadre.protocol.usage import TokenUsage
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from unit.loop.build import SPEC, task

DONE = ev.RunFinished(state="success", output="42", steps=1)


def journal_of(*entries: list[ev.AnyEvent]) -> list[Entry]:
    """Of a run with these entries behind its first, a second apart."""
    begun: list[ev.AnyEvent] = [ev.RunAccepted(task=task(), spec=SPEC, decided_by="tool_calling")]
    return [
        Entry(
            arrived=ArrivalRecord("Task"),
            run="r1",
            agent="boss",
            n=n,
            cause=f"c{n}",
            at=100.0 + n,
            events=events,
        )
        for n, events in enumerate([begun, *entries], 1)
    ]


def spans_of(*entries: list[ev.AnyEvent], content: bool = False) -> list[SpanRecord]:
    return trace_of(journal_of(*entries), now=0.0, content=content)


def called(purpose: str, attempt: int = 1) -> ev.ModelCalled:
    return ev.ModelCalled(purpose=purpose, step=1, attempt=attempt, cause="c1")


def answered(purpose: str, attempt: int = 1) -> ev.ModelAnswered:
    usage = TokenUsage(input_tokens=7, output_tokens=3)
    return ev.ModelAnswered(purpose=purpose, step=1, attempt=attempt, content="said", usage=usage)


def remembering() -> list[list[ev.AnyEvent]]:
    asked = ev.MemoryAsked(call="r1_0_0", query="what do I know", count=3)
    memories = [Memory(text="a secret")]
    found = ev.MemoryRecalled(call="r1_0_0", memories=memories, executor="memory-1", seconds=0.25)
    return [[asked], [found, called("act")], [answered("act"), DONE]]


def test_a_run_that_remembers() -> None:
    spans = spans_of(*remembering())
    search = next(span for span in spans if span.name == "search_memory")
    work = next(span for span in spans if span.service == "recall")
    agent = next(span for span in spans if span.name == "invoke_agent boss")
    assert (search.parent, work.parent) == (agent.span, search.span)
    assert (search.start / 1e9, search.end / 1e9, work.end - work.start) == (102.0, 103.0, 250_000_000)
    assert (search.attributes[names.MEMORY_COUNT], search.attributes[names.KIND]) == (1, "RETRIEVER")
    assert "secret" not in str(spans)
    assert "a secret" in str(spans_of(*remembering(), content=True))


def test_a_context_that_overflows_is_summarized_and_every_call_counts() -> None:
    """The same model call may be made again after each summary: each is its own span, with its tokens."""
    full = ev.ContextOverflowed(step=1, attempt=1, reason="too long")
    spans = spans_of(
        [called("act")],
        [full, called("summary")],
        [answered("summary"), called("act")],
        [full, called("summary")],
        [answered("summary"), called("act", 2)],
        [answered("act", 2), DONE],
    )
    chats = [span for span in spans if span.name.startswith("chat")]
    assert len({span.span for span in chats}) == len(chats) == 5
    assert [(span.attributes[names.PURPOSE], span.attributes.get(names.ERROR_TYPE)) for span in chats] == [
        ("act", "context_overflow"),
        ("summary", None),
        ("act", "context_overflow"),
        ("summary", None),
        ("act", None),
    ]
    assert sum(int(str(span.attributes.get(names.INPUT_TOKENS, 0))) for span in chats) == 21
    step = next(span for span in spans if span.name == "step 1")
    assert {span.parent for span in chats} == {step.span}
