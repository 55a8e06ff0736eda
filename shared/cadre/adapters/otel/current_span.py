"""The span that this process is in at the moment, if it records any."""

from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def link_current(trace_id: str, span_id: str) -> None:
    """Links the current span to another one (ids in hex)."""
    span = trace.get_current_span()
    if span.is_recording():
        flags = TraceFlags(TraceFlags.SAMPLED)
        span.add_link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags))


def current_traceparent() -> str | None:
    """Returns the current span as a W3C traceparent; None when none is recorded."""
    if not trace.get_current_span().is_recording():
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
