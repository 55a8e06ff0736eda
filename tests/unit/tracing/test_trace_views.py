"""The views that need no backend: the order of spans, a page that harms no one, OTLP as an exporter would send it."""

import base64
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cadre.telemetry.tracing.otlp_json import otlp_json
from cadre.telemetry.tracing.page import duration, in_order, page, trace_of
from harness.otlp_receiver import decode
from unit.loop.build import SimulatedRun, call, result
from unit.tracing.test_span_projection import simple
from unit.tracing.test_trace_content import calling

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def test_parents_stand_before_their_children_and_siblings_in_time() -> None:
    placed = list(in_order(trace_of(simple().journal(), now=0.0)))
    assert [(depth, span.name) for depth, span in placed] == [
        (0, "invoke_workflow boss"),
        (1, "invoke_agent boss"),
        (2, "step 1"),
        (3, "chat gpt"),
        (3, "execute_tool add"),
        (4, "process cadre.call.add"),
        (2, "step 2"),
        (3, "chat gpt"),
    ]


def test_a_part_of_a_trace_stands_for_itself() -> None:
    spans = [span for span in trace_of(simple().journal(), now=0.0) if span.name.startswith(("step", "chat"))]
    assert [depth for depth, _ in in_order(spans)] == [0, 1, 0, 1]


class Page(HTMLParser):
    """The page as a browser would parse it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_what_others_wrote_and_runs_none_of_it() -> None:
    sim = SimulatedRun().begin(EVIL)
    sim.say(call(EVIL, x=1), call("add", a=1, b=2))
    sim.arrive(result(sim.id(1), EVIL))
    sim.say(call("final_answer", answer=EVIL))
    text = page(trace_of(sim.journal(), now=0.0, content=True), f"boss {EVIL}")
    found = Page(text)
    assert EVIL in found.text
    assert {"script", "img", "link", "iframe"}.isdisjoint(found.tags)
    assert {"src", "href", "onerror"}.isdisjoint(found.attributes)
    assert "http" not in text


def test_a_run_that_has_not_begun_has_a_page_too() -> None:
    assert "0 spans" in page([], "nothing")


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (4_000_000, "4 ms"),
        (1_240_000_000, "1.24 s"),
        (185 * 10**9, "3 min 05 s"),
        (7810 * 10**9, "2 h 10 min"),
    ],
)
def test_durations_are_short(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


def test_the_download_says_what_an_exporter_says() -> None:
    """Read as protobuf it has the same spans, times, attributes and parents as the records."""
    spans = trace_of(calling().journal(), now=0.0)
    request = ParseDict(_with_base64_ids(otlp_json(spans)), ExportTraceServiceRequest())
    found = {span.span: span for span in decode(request.SerializeToString())}
    assert len(found) == len(spans)
    for span in spans:
        over = found[span.span]
        assert (over.trace, over.parent, over.name) == (span.trace, span.parent or "", span.name)
        assert (over.start, over.end, over.attributes) == (span.start, span.end, span.attributes)
        assert (over.message, over.service) == (span.message, span.service)
        assert over.links == [(link.trace, link.span) for link in span.links]
        assert over.events == [moment.name for moment in span.moments]


def test_open_spans_are_not_in_the_download() -> None:
    sim = SimulatedRun().begin()
    assert otlp_json(trace_of(sim.journal(), now=200.0)) == {"resourceSpans": []}


def _with_base64_ids(value: Any) -> Any:
    """OTLP writes ids in hex, protobuf's own JSON would have base64."""
    if isinstance(value, list):
        return [_with_base64_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64encode(bytes.fromhex(one)).decode() if key in ids else _with_base64_ids(one)
        for key, one in value.items()
    }


def test_a_long_error_is_cut_in_its_line_and_whole_within_it() -> None:
    spans = trace_of(simple().journal(), now=0.0)
    spans[3] = msgspec.structs.replace(spans[3], status="ERROR", message="E" * 5_000)
    text = Page(page(spans, "a long error")).text
    assert f"{'E' * 300}…" in text
    assert "E" * 5_000 in text
