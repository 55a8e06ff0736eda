"""The span that code of others runs below: known to OpenTelemetry wherever that code has brought it along."""

from __future__ import annotations

import contextvars
import sys


def below(traceparent: str) -> contextvars.Context:
    """A copy of the current context in which the span of a W3C traceparent is the current one.

    Where nobody has imported OpenTelemetry there is nobody to ask for the span, and no reason to load it.
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
