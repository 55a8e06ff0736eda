"""Ties a request to the trace of its run."""

from cadre.adapters.otel.current_span import current_traceparent, link_current
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing.ids import agent_span, root_span, trace_id, traceparent_of_run
from cadre.telemetry.tracing.spans import link_to


def trace_of(traceparent: str | None) -> str | None:
    """What the run's trace is linked to: this request where its span is recorded, else the caller's span if there
    is one. The run has a trace of its own, whose ids follow from the run's."""
    if (here := current_traceparent()) is not None:
        return here
    return traceparent if link_to(traceparent) else None


def trace_headers(run: str) -> dict[str, str]:
    """What a caller needs to find the run's trace; the span of the request in hand is linked to it."""
    tree = tree_of(run)
    link_current(trace_id(tree), root_span(tree) if run == tree else agent_span(run))
    return {"X-Trace-Id": trace_id(tree), "traceparent": traceparent_of_run(run)}
