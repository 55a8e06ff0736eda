"""Runs foreign code below a span of ours, so that spans which that code makes join the run's trace."""

import contextvars
import sys


def context_below(traceparent: str) -> contextvars.Context:
    """A copy of the current context in which the span of a W3C traceparent is the current one.

    Does not load OpenTelemetry: where it is not imported, no code asks for the current span.
    """
    context = contextvars.copy_context()
    if "opentelemetry" in sys.modules:
        context.run(_attach, traceparent)
    return context


def _attach(traceparent: str) -> None:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    extracted = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context.get_current())
    context.attach(extracted)
