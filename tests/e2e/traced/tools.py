"""Tools that leave marks which a test can count, and record spans of their own, as their author likes it."""

import os
import time
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from cadre import ToolContext, tool

RECEIVER = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
PROVIDER = TracerProvider(resource=Resource({"service.name": "tools of mine"}))
PROVIDER.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{RECEIVER}/v1/traces", timeout=2)))
trace.set_tracer_provider(PROVIDER)


@tool(idempotent=True)
def keyed(file: str, seconds: float, context: ToolContext) -> str:
    """Leave a mark that may be left twice.

    Args:
        file: Where to leave it.
        seconds: How long to take after that.
    """
    return _mark("keyed", file, seconds, context)


@tool
def effect(file: str, seconds: float, context: ToolContext) -> str:
    """Leave a mark and take some time.

    Args:
        file: Where to leave it.
        seconds: How long to take after that.
    """
    return _mark("effect", file, seconds, context)


@tool
def refund(file: str, seconds: float, context: ToolContext) -> str:
    """Pay money back.

    Args:
        file: Where to note it.
        seconds: How long to take after that.
    """
    return _mark("refund", file, seconds, context)


def _mark(name: str, file: str, seconds: float, context: ToolContext) -> str:
    with Path(file).open("a") as marks:
        marks.write(f"{name} {context.call_id} {context.traceparent}\n")
    time.sleep(seconds)
    with trace.get_tracer("mine").start_as_current_span("my own work"):
        return f"{name} is done"
