"""Link the span of a request to the trace of its run."""

from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cadre.protocol.messages import Task
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing.ids import agent_span, root_span, sampled, trace_id, traceparent_of_run

_left_out: ContextVar[str] = ContextVar("left_out", default="")
"""The tree that this request found or began, if it is not sampled."""


def trace_of(traceparent: str | None) -> str | None:
    """Return what the run's trace is linked to, and sampled after: the span of this request, else the caller's span if
    there is one. The run has a separate trace, whose ids follow from the run's."""
    if (here := current_traceparent()) is not None:
        return here
    return traceparent if sampled(traceparent) is not None else None


def trace_headers(run: str) -> dict[str, str]:
    """Return what a caller needs to find the run's trace; the span of this request is linked to a sampled one."""
    tree = tree_of(run)
    is_sampled = _left_out.get() != tree
    if is_sampled:
        link_current(trace_id(tree), root_span(tree) if run == tree else agent_span(run))
    return {"X-Trace-Id": trace_id(tree), "traceparent": traceparent_of_run(run, sampled=is_sampled)}


def note_sampling(task: Task | None) -> None:
    """Remember for the answer to this request whether the tree of a task is sampled."""
    _left_out.set(task.tree if task is not None and sampled(task.trace) is False else "")


def link_current(trace_id: str, span_id: str) -> None:
    """Link the current span to another one (ids in hex)."""
    span = trace.get_current_span()
    if span.is_recording():
        flags = TraceFlags(TraceFlags.SAMPLED)
        span.add_link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags))


def current_traceparent() -> str | None:
    """Return the current span as a W3C traceparent, even if it was not sampled, so that its run need not be either;
    None without a span."""
    span = trace.get_current_span()
    context = span.get_span_context()
    if not span.is_recording() and (context.trace_flags.sampled or not context.is_valid):
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
