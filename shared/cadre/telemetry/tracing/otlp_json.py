"""Spans as OTLP in JSON: a file that any OpenTelemetry backend can import."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.spans import SpanRecord, Value

_KINDS = {"INTERNAL": 1, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}
_SAMPLED = 1


def otlp_json(spans: Iterable[SpanRecord]) -> dict[str, Any]:
    """An ExportTraceServiceRequest in the JSON of the protocol: ids in hex, times as text. Open spans are left out,
    as an exporter does."""
    by_resource: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for span in spans:
        if not span.open:
            by_resource.setdefault((span.service, span.instance, span.version), []).append(_span(span))
    scope = {"name": names.SCOPE, "version": names.VERSION}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource_of(*resource))},
                "scopeSpans": [{"scope": scope, "spans": some, "schemaUrl": names.SCHEMA_URL}],
            }
            for resource, some in by_resource.items()
        ]
    }


def resource_of(
    service: str, instance: str, version: str = "", also: Mapping[str, Value] = MappingProxyType({})
) -> dict[str, Value]:
    """Return the attributes of a span's resource: the service, and the replica and version of it where known.

    Those of `also` are the deployment's (`OTEL_RESOURCE_ATTRIBUTES`): they may name another namespace, and never
    another service.
    """
    known = {names.SERVICE: service, names.SERVICE_INSTANCE: instance, names.SERVICE_VERSION: version}
    if instance and names.K8S_NAMESPACE in also:
        known[names.K8S_POD] = instance  # there a replica has the name of its pod
    namespace: dict[str, Value] = {names.SERVICE_NAMESPACE: names.SCOPE}
    return {**namespace, **also, **{key: value for key, value in known.items() if value}}


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
