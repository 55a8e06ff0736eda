"""Code of others runs context_below the span of its call, if it has brought OpenTelemetry along."""

import subprocess
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cadre.runtime.invocation import context_below
from cadre_gateway.requests.trace_link import current_traceparent, link_current

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_spans_of_a_tool_are_children_of_its_call() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def work() -> None:
        with provider.get_tracer("tool").start_as_current_span("its own"):
            pass

    context_below(PARENT).run(work)
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == PARENT[3:-3]
    assert not trace.get_current_span().get_span_context().is_valid, "and nobody else is context_below it"


def test_a_recorded_request_is_the_parent_that_a_run_is_linked_to() -> None:
    provider = TracerProvider()
    assert current_traceparent() is None
    with provider.get_tracer("http").start_as_current_span("POST /v1/runs") as span:
        link_current("ab" * 16, "cd" * 8)
        there = span.get_span_context()
        assert (current_traceparent() or "")[3:-3] == f"{there.trace_id:032x}-{there.span_id:016x}"
    assert [f"{link.context.trace_id:032x}" for link in span.links] == ["ab" * 16]  # type: ignore[attr-defined]


def test_nothing_is_loaded_for_tools_that_do_not_ask() -> None:
    code = (
        "import sys\nfrom cadre.runtime.invocation import context_below\n"
        f"context_below({PARENT!r}).run(lambda: None)\nprint('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
