"""Spans as OTLP in JSON: a file that any OpenTelemetry backend can import."""

from collections.abc import Iterable
from typing import Any

from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.spans import SpanRecord, Value

_KINDS = {"INTERNAL": 1, "CLIENT": 3, "CONSUMER": 5}
_STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}
_SAMPLED = 1


def otlp_json(spans: Iterable[SpanRecord]) -> dict[str, Any]:
    """An ExportTraceServiceRequest in the JSON of the protocol: ids in hex, times as text. Open spans are left out,
    as an exporter does."""
    by_resource: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for span in spans:
        if not span.open:
            by_resource.setdefault((span.service, span.instance), []).append(_span(span))
    scope = {"name": names.SCOPE}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource_of(*resource))},
                "scopeSpans": [{"scope": scope, "spans": some, "schemaUrl": names.SCHEMA_URL}],
            }
            for resource, some in by_resource.items()
        ]
    }


def resource_of(service: str, instance: str) -> dict[str, Value]:
    """Attributes of the resource: the service, and which of its replicas did the work of a span."""
    found: dict[str, Value] = {names.SERVICE: service, names.SERVICE_NAMESPACE: names.SCOPE}
    return found | ({names.SERVICE_INSTANCE: instance} if instance else {})


def _span(span: SpanRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.span,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
        "flags": _SAMPLED,
        "status": {"code": _STATUS[span.status]} | ({"message": span.message} if span.message else {}),
    }
    if span.parent is not None:
        found["parentSpanId"] = span.parent
    if span.links:
        found["links"] = [{"traceId": link.trace, "spanId": link.span} for link in span.links]
    if span.moments:
        found["events"] = [
            {
                "name": moment.name,
                "timeUnixNano": str(moment.at),
                "attributes": _attributes(moment.attributes),
            }
            for moment in span.moments
        ]
    return found


def _attributes(attributes: dict[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
        case _:
            return {"stringValue": value}
