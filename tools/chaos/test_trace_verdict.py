"""The verdict over traces can fail: what a sound chaos sends passes, and each way in which it is doctored is found."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

from cadre.adapters.otlp import readable
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.telemetry.tracing.page import trace_of
from chaos.evidence import Evidence
from chaos.sound import sound_evidence
from chaos.traces import summary, violations
from harness.otlp_receiver import Span, decode


def traced() -> Evidence:
    """Sound evidence, with what a tracer would have sent of its journals."""
    evidence = sound_evidence()
    entries = [stored.entry for journal in evidence.journals.values() for stored in journal]
    spans = trace_of(entries, now=0.0)
    request = encode_spans([readable(span, Resource(resource_of(span.service, ""))) for span in spans])
    evidence.spans = decode(request.SerializeToString())
    return evidence


def spans_of(evidence: Evidence) -> list[Span]:
    assert evidence.spans is not None
    return evidence.spans


def remove(evidence: Evidence, what: Callable[[Span], bool]) -> Span:
    """The first span of that kind, which is lost."""
    spans = spans_of(evidence)
    return spans.pop(next(place for place, span in enumerate(spans) if what(span)))


def change(evidence: Evidence, what: Callable[[Span], bool], **fields: Any) -> None:
    """Another form of the first span of that kind is there as well."""
    span = next(span for span in spans_of(evidence) if what(span))
    spans_of(evidence).append(span._replace(**fields))


def is_chat(span: Span) -> bool:
    return span.attributes.get(names.OPERATION) == names.CHAT


def test_a_sound_chaos_has_sound_traces() -> None:
    evidence = traced()
    assert list(violations(evidence)) == []
    assert f"3   with {len(spans_of(evidence))} spans; 0 came again" in next(summary(evidence))


def test_the_same_span_twice_is_no_violation() -> None:
    evidence = traced()
    spans_of(evidence).append(spans_of(evidence)[0])
    assert list(violations(evidence)) == []
    assert "1 came again" in next(summary(evidence))


def lose_tokens(evidence: Evidence) -> None:
    span = remove(evidence, is_chat)
    spans_of(evidence).append(span._replace(attributes={**span.attributes, names.INPUT_TOKENS: 99}))


@pytest.mark.parametrize(
    ("doctor", "problem"),
    [
        (lambda e: remove(e, lambda span: span.name == "step 1"), "is an orphan"),
        (lambda e: remove(e, lambda span: not span.parent), "it has 0 roots"),
        (lambda e: change(e, lambda _: True, span="ab" * 8, parent=""), "it has 2 roots"),
        (lambda e: remove(e, is_chat), "model calls have a span"),
        (lose_tokens, "its journal says"),
        (lambda e: change(e, lambda _: True, wire=b"another"), "came in two forms"),
    ],
)
def test_doctored_traces_are_found(doctor: Callable[[Evidence], object], problem: str) -> None:
    evidence = traced()
    doctor(evidence)
    assert any(problem in line for line in violations(evidence))
