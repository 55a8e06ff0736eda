"""The verdict over traces can fail: what a sound chaos sends passes, and each way in which it is doctored is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

from cadre.adapters.otel.otlp_spans import readable
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.telemetry.tracing.tree_trace import trace_of
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


def found(evidence: Evidence, what: Callable[[Span], bool]) -> int:
    """Where the first span of that kind is."""
    assert evidence.spans is not None
    return next(place for place, span in enumerate(evidence.spans) if what(span))


def is_chat(span: Span) -> bool:
    return span.attributes.get(names.OPERATION) == names.CHAT


def test_a_sound_chaos_has_sound_traces() -> None:
    evidence = traced()
    assert list(violations(evidence)) == []
    assert evidence.spans is not None
    assert f"2   with {len(evidence.spans)} spans; 0 came again" in next(summary(evidence))


def test_the_same_span_twice_is_no_violation() -> None:
    evidence = traced()
    assert evidence.spans is not None
    evidence.spans.append(evidence.spans[0])
    assert list(violations(evidence)) == []
    assert "1 came again" in next(summary(evidence))


def lose_a_parent(evidence: Evidence) -> None:
    assert evidence.spans is not None
    del evidence.spans[found(evidence, lambda span: span.name == "step 1")]


def lose_a_root(evidence: Evidence) -> None:
    assert evidence.spans is not None
    del evidence.spans[found(evidence, lambda span: not span.parent)]


def add_a_root(evidence: Evidence) -> None:
    assert evidence.spans is not None
    evidence.spans.append(evidence.spans[0]._replace(span="ab" * 8, parent=""))


def lose_a_model_call(evidence: Evidence) -> None:
    assert evidence.spans is not None
    del evidence.spans[found(evidence, is_chat)]


def lose_tokens(evidence: Evidence) -> None:
    assert evidence.spans is not None
    place = found(evidence, is_chat)
    span = evidence.spans[place]
    evidence.spans[place] = span._replace(attributes={**span.attributes, names.INPUT_TOKENS: 99})


def change_a_span(evidence: Evidence) -> None:
    assert evidence.spans is not None
    evidence.spans.append(evidence.spans[0]._replace(wire=b"another"))


@pytest.mark.parametrize(
    ("doctor", "says"),
    [
        (lose_a_parent, "is an orphan"),
        (lose_a_root, "it has 0 roots"),
        (add_a_root, "it has 2 roots"),
        (lose_a_model_call, "model calls have a span"),
        (lose_tokens, "its journal says"),
        (change_a_span, "came in two forms"),
    ],
)
def test_doctored_traces_are_found(doctor: Callable[[Evidence], None], says: str) -> None:
    evidence = traced()
    doctor(evidence)
    assert any(says in line for line in violations(evidence))
