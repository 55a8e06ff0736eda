"""A mark for each solution: what was proposed, in the step that carries it out."""

from cadre.journal.parts import JournalEvent
from cadre.kinds.solution.records import SolutionProposed
from cadre.telemetry.tracing.mark_spans import MarkSpans


class SolutionSpans(MarkSpans):
    """`kind_spans.KindSpans` for agents that propose solutions."""

    name, key = "propose_solution", "solution"

    def mark_of(self, event: JournalEvent) -> tuple[int, str] | None:
        """The names of the calls."""
        if not isinstance(event, SolutionProposed):
            return None
        return event.step, ", ".join(call.name for call in event.calls)
