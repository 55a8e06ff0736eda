"""Span records to a receiver, by OpenTelemetry's own exporter for OTLP over HTTP."""

import enum
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from cadre.adapters.otel.otlp_receiver import Receiver
from cadre.recent import Recent
from cadre.settings import TracingSettings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.tools.thread import run_in_thread

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope(names.SCOPE, schema_url=names.SCHEMA_URL)
_MOST_RESOURCES = 4096
_REFUSALS = (400, 413, 422)
"""What a receiver answers about the spans themselves. Anything else may pass, a wrong key or path included."""


class Sent(enum.Enum):
    """What became of spans that were sent."""

    DONE = "done"
    LATER = "later"
    """Nobody has them: the same spans are to be sent again."""
    REFUSED = "refused"
    """The receiver will not have these spans, ever."""


class SpanSender:
    """One connection to a receiver."""

    def __init__(self, settings: TracingSettings) -> None:
        self._attributes = settings.attributes
        self._receiver = Receiver(settings)
        self._exporter = OTLPSpanExporter(**self._receiver.options)
        self._resources = Recent[tuple[str, str], Resource](_MOST_RESOURCES)

    async def send(self, spans: Sequence[SpanRecord]) -> Sent:
        """Sends all of the spans or none, within the settings' timeout. Not to be called twice at once."""
        batch = [readable(span, self._resource(span)) for span in spans]
        self._receiver.status = None
        result = await run_in_thread(lambda: self._exporter.export(batch), "otlp")
        if result is SpanExportResult.SUCCESS:
            return Sent.DONE
        return Sent.REFUSED if self._receiver.status in _REFUSALS else Sent.LATER

    @property
    def failure(self) -> str:
        """Why the last request failed."""
        return self._receiver.failure

    def close(self) -> None:
        """Ends a `send` that waits to try again."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _resource(self, span: SpanRecord) -> Resource:
        key = (span.service, span.instance)
        resource = self._resources.get(key)
        if resource is None:
            resource = Resource({**self._attributes, **resource_of(*key)})
        self._resources[key] = resource
        return resource


def readable(span: SpanRecord, resource: Resource) -> ReadableSpan:
    """Returns the record as the SDK's exporters take it."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.span, remote=False),
        parent=_context(span.trace, span.parent) if span.parent is not None else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(moment.name, moment.attributes, moment.at) for moment in span.moments],
        links=[Link(_context(link.trace, link.span)) for link in span.links],
        kind=SpanKind[span.kind],
        instrumentation_scope=_SCOPE,
        status=Status(StatusCode[span.status], span.message or None),
        start_time=span.start,
        end_time=span.end,
    )


def _context(trace: str, span: str, *, remote: bool = True) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), remote, _SAMPLED)
