"""A span without a length for each solution: what was proposed, in the step that carries it out."""

from cadre.journal.parts import JournalEvent
from cadre.kinds.solution.records import SolutionProposed
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import span_id
from cadre.telemetry.tracing.open_spans import OpenSpan, OpenSpans

NAME = "propose_solution"


class SolutionSpans:
    """`kind_spans.KindSpans` for agents that propose solutions."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans
        self._content = content

    def parent(self, parent: str) -> str:
        """The step itself."""
        return parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Adds the span of a proposal."""
        if not isinstance(event, SolutionProposed):
            return
        calls = ", ".join(call.name for call in event.calls)
        proposed = OpenSpan(span_id(parent, "solution", event.step), parent, NAME, now, agent)
        proposed.attributes = {
            names.AGENT: agent,
            names.KIND: "CHAIN",
            **self._content.of(OUTPUT_VALUE=calls or None),
        }
        self._spans.add(proposed, now, None)
