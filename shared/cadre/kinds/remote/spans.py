"""The spans of what a remote agent tells of its own work: one for each call of its tools."""

from typing import Any

from cadre.journal.parts import JournalEvent
from cadre.kinds.remote.records import RemoteProgressed
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import span_id
from cadre.telemetry.tracing.kind_spans import about_tool, tool_name
from cadre.telemetry.tracing.open_spans import Fault, OpenSpan, OpenSpans
from cadre.telemetry.tracing.spans import nanoseconds


class RemoteSpans:
    """`kind_spans.KindSpans` for agents that stand for remote ones."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans
        self._content = content

    def parent(self, parent: str) -> str:
        """The step itself."""
        return parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Adds the spans of calls that have ended."""
        if isinstance(event, RemoteProgressed):
            for one in event.activity:
                if one.get("type") == "tool" and one.get("ended"):
                    self._add(one, agent, parent, now)

    def _add(self, one: dict[str, Any], agent: str, parent: str, now: int) -> None:
        # The clock is that of the executor: nothing of it may lie behind what the journal says.
        end = min(nanoseconds(one["ended"]), now)
        start = min(nanoseconds(one.get("began") or one["ended"]), end)
        tool, call = str(one.get("sort") or "other"), str(one.get("id"))
        span = OpenSpan(span_id(parent, "remote", call), parent, tool_name(tool), start, agent)
        span.attributes = {
            **about_tool(tool, call, agent),
            names.TOOL_TYPE: "extension",
            **self._content.of(INPUT_VALUE=one.get("title"), OUTPUT_VALUE=one.get("text")),
        }
        self._spans.add(span, end, Fault("failed") if one.get("status") == "failed" else None)
