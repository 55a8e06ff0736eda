"""The traces of a chaos: whether what the receiver was sent is what the journals tell."""

from collections.abc import Iterator

from chaos.evidence import Evidence
from harness import trace_verdict


def violations(evidence: Evidence) -> Iterator[str]:
    """No matter who was killed meanwhile; nothing to say where no one listened."""
    if evidence.spans is None:
        return
    events = {
        run: [event for stored in journal for event in stored.entry.events]
        for run, journal in evidence.journals.items()
    }
    yield from (f"trace: {problem}" for problem in trace_verdict.violations(evidence.spans, events))


def summary(evidence: Evidence) -> Iterator[str]:
    """A line of the report."""
    if evidence.spans is not None:
        again = trace_verdict.duplicates(evidence.spans)
        traces = len({span.trace for span in evidence.spans})
        yield f"  traces    {traces:4}   with {len(evidence.spans) - again} spans; {again} came again, the same"
