"""Spans of the events that only one kind of agent journals, and what they share with the common ones."""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from cadre.journal.parts import JournalEvent
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import declared_kinds
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.open_spans import Fault, OpenSpans
from cadre.telemetry.tracing.spans import Value


class KindSpans(Protocol):
    """The spans of one run's own events; made by calling the class with (spec, spans, content)."""

    def parent(self, parent: str) -> str:
        """What a call of this moment hangs below, where that is not the step."""
        ...

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Takes any event of the run, after the common spans have; `now` is in nanoseconds."""
        ...


@functools.cache
def _maker(where: str) -> Callable[[AgentSpec, OpenSpans, Content], KindSpans]:
    module, _, attribute = where.partition(":")
    found: Callable[[AgentSpec, OpenSpans, Content], KindSpans] = getattr(import_module(module), attribute)
    return found


def kind_spans(kind: str, spec: AgentSpec, spans: OpenSpans, content: Content) -> KindSpans | None:
    """Return those of the kind that decides the run; None for a kind without any, and for one that is not installed
    here."""
    known = declared_kinds().get(kind)
    return _maker(known.spans)(spec, spans, content) if known is not None and known.spans else None


def tool_name(tool: str) -> str:
    """Name of the span of a call of this tool."""
    return names.MEMORY_TOOLS.get(tool) or f"{names.EXECUTE_TOOL} {tool}"


def about_tool(tool: str, call: str, agent: str) -> dict[str, Value]:
    """Attributes of a tool call, after OpenTelemetry's GenAI conventions."""
    return {
        names.OPERATION: names.MEMORY_TOOLS.get(tool, names.EXECUTE_TOOL),
        names.TOOL: tool,
        names.TOOL_CALL: call,
        names.TOOL_TYPE: "function",
        names.AGENT: agent,
        names.OI_TOOL: tool,
        names.KIND: "RETRIEVER" if names.MEMORY_TOOLS.get(tool) == names.SEARCH_MEMORY else "TOOL",
    }


def about_messaging(template: str, message: str) -> dict[str, Value]:
    """Attributes of a message's processing, after OpenTelemetry's messaging conventions."""
    return {
        names.MESSAGING_SYSTEM: "nats",
        names.MESSAGING_OPERATION: names.PROCESS,
        names.MESSAGING_OPERATION_TYPE: names.PROCESS,
        names.DESTINATION_TEMPLATE: template,
        names.MESSAGE_ID: message,
    }


def fault_of(error: ErrorInfo | None) -> Fault | None:
    """A span's fault, from the error of an event."""
    return Fault(error.type, error.message) if error is not None else None
