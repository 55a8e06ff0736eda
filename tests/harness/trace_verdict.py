"""A check that a receiver has the spans of the journals: one root, no orphan, nothing twice and different, all
tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cadre.journal.events import AnyEvent, ModelAnswered, ModelCalled, RunFinished
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import trace_id
from harness.otlp_receiver import Span


def violations(spans: Sequence[Span], journals: Mapping[str, Sequence[AnyEvent]]) -> list[str]:
    """`journals` are the events of all runs; runs that go on have no root yet."""
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace, []).append(span)
    found: list[str] = []
    over = {run for run, events in journals.items() if any(isinstance(e, RunFinished) for e in events)}
    for tree in sorted({tree_of(run) for run in journals}):
        trace = by_trace.pop(trace_id(tree), [])
        runs = [run for run in journals if tree_of(run) == tree]
        if over.issuperset(runs):
            found += [f"tree {tree}: {problem}" for problem in _of_trace(trace)]
        found += [f"run {run}: {problem}" for run in runs for problem in _of_run(run, trace, journals[run])]
    return found


def differing(spans: Iterable[Span]) -> list[str]:
    """Spans that were sent more than once, and not the same each time."""
    known: dict[tuple[str, str], Span] = {}
    return [
        f"span {span.name} {span.span} came in two forms"
        for span in spans
        if known.setdefault((span.trace, span.span), span).wire != span.wire
    ]


def duplicates(spans: Sequence[Span]) -> int:
    return len(spans) - len({(span.trace, span.span) for span in spans})


def _of_trace(spans: Sequence[Span]) -> Iterator[str]:
    unique = {span.span: span for span in spans}
    roots = [span.name for span in unique.values() if not span.parent]
    if len(roots) != 1:
        yield f"it has {len(roots)} roots: {roots}"
    for span in unique.values():
        if span.parent and span.parent not in unique:
            yield f"{span.name} {span.span} is an orphan"
    yield from differing(spans)


def _of_run(run: str, spans: Sequence[Span], events: Sequence[AnyEvent]) -> Iterator[str]:
    """Every model call that the journal knows is there, with the tokens that it reports."""
    own = {span.span: span for span in spans if span.attributes.get(names.RUN) == run}.values()
    chats = [span for span in own if span.attributes.get(names.OPERATION) == names.CHAT]
    begun = sum(isinstance(event, ModelCalled) for event in events)
    over = any(isinstance(event, RunFinished) for event in events)
    if over and len(chats) != begun:
        yield f"{len(chats)} of {begun} model calls have a span"
    told = sorted(
        (event.usage.input_tokens, event.usage.output_tokens) for event in events if isinstance(event, ModelAnswered)
    )
    counted = sorted(
        (span.attributes[names.INPUT_TOKENS], span.attributes[names.OUTPUT_TOKENS])
        for span in chats
        if names.INPUT_TOKENS in span.attributes
    )
    if counted != told:
        yield f"its model calls have tokens {counted}, its journal says {told}"
