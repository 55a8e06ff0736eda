"""Spans without a length, which mark what an agent's kind has journaled in the step in work."""

from abc import ABC, abstractmethod

from cadre.journal.parts import JournalEvent
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import span_id
from cadre.telemetry.tracing.open_spans import OpenSpan, OpenSpans


class MarkSpans(ABC):
    """`kind_spans.KindSpans` of a kind that has a mark for one sort of its events and nothing else."""

    name: str
    """Name of the spans."""
    key: str
    """What tells the mark's id from those of other spans of the step: it must never change."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans
        self._content = content

    @abstractmethod
    def mark_of(self, event: JournalEvent) -> tuple[int, str] | None:
        """Number of the step that the event marks, with the text that is exported where content is; None: no mark."""

    def parent(self, parent: str) -> str:
        """The step itself."""
        return parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Adds the mark of an event that has one."""
        mark = self.mark_of(event)
        if mark is None:
            return
        step, text = mark
        span = OpenSpan(span_id(parent, self.key, step), parent, self.name, now, agent)
        span.attributes = {
            names.AGENT: agent,
            names.KIND: "CHAIN",
            **self._content.of(OUTPUT_VALUE=text or None),
        }
        self._spans.add(span, now)
