"""A span without a length for each plan that is made, in the step of the run that makes it."""

from cadre.engine.context.observation import observation_of
from cadre.journal.parts import JournalEvent
from cadre.kinds.plan.records import PlanMade
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import span_id
from cadre.telemetry.tracing.open_spans import OpenSpan, OpenSpans

NAME = "make_plan"


class PlanSpans:
    """`kind_spans.KindSpans` for agents that carry out plans."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans
        self._content = content

    def parent(self, parent: str) -> str:
        """The step itself."""
        return parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Adds the span of a plan."""
        if not isinstance(event, PlanMade):
            return
        made = OpenSpan(span_id(parent, "plan", event.step), parent, NAME, now, agent)
        told = "; ".join(
            f"{one.step} {one.action}: {one.task or observation_of(one.args)}" for one in event.steps
        )
        made.attributes = {
            names.AGENT: agent,
            names.KIND: "CHAIN",
            **self._content.of(OUTPUT_VALUE=told or None),
        }
        self._spans.add(made, now, None)
