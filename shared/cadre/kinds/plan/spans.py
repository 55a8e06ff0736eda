"""A mark for each plan that is made, in the step of the run that makes it."""

from cadre.engine.context.observation import observation_of
from cadre.journal.parts import JournalEvent
from cadre.kinds.plan.records import PlanMade
from cadre.telemetry.tracing.mark_spans import MarkSpans


class PlanSpans(MarkSpans):
    """`kind_spans.KindSpans` for agents that carry out plans."""

    name, key = "make_plan", "plan"

    def mark_of(self, event: JournalEvent) -> tuple[int, str] | None:
        """The steps of a plan."""
        if not isinstance(event, PlanMade):
            return None
        steps = (f"{one.step} {one.action}: {one.task or observation_of(one.args)}" for one in event.steps)
        return event.step, "; ".join(steps)
