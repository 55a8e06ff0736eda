"""Send spans and metrics to a receiver by OpenTelemetry's exporters for OTLP over HTTP."""

import asyncio
import enum
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from cadre.adapters.addresses import is_loopback
from cadre.recent import Recent
from cadre.settings import MetricsSettings, TracingSettings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.tools.thread import run_in_thread

_COMPRESSION = {"none": Compression.NoCompression, "gzip": Compression.Gzip, "deflate": Compression.Deflate}

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope(names.SCOPE, schema_url=names.SCHEMA_URL)
_MOST_RESOURCES = 4096
_REFUSALS = (400, 413, 422)
"""What a receiver answers about the spans themselves. Anything else may pass, a wrong key or path included."""

log = logging.getLogger("cadre.tracing")

_DELAY_MS = 1000
_QUEUE = 8192
_BATCH = 256


class Receiver:
    """A connection to the receiver that the settings describe."""

    def __init__(self, settings: TracingSettings) -> None:
        self.status: int | None = None
        """Of its last answer; None when it gave none."""
        session = requests.Session()
        # The environment's proxy is not asked for this machine's own addresses.
        session.trust_env = not is_loopback(urlsplit(settings.endpoint).hostname or "")
        session.hooks["response"].append(self._note)
        self.options: dict[str, Any] = {
            "endpoint": settings.endpoint,
            "certificate_file": settings.certificate,
            "client_key_file": settings.client_key,
            "client_certificate_file": settings.client_certificate,
            "headers": settings.headers,
            "timeout": settings.timeout,
            "compression": _COMPRESSION[settings.compression],
            "session": session,
        }
        """What an exporter is made with."""

    @property
    def failure(self) -> str:
        """Why the last request failed."""
        return f"it answers {self.status}" if self.status is not None else "it does not answer"

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status = response.status_code


class Sent(enum.Enum):
    """The outcome of sending spans."""

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


def live_provider(settings: TracingSettings, service: str, instance: str) -> TracerProvider:
    """Makes a tracer provider of its own, which is nobody's default."""
    resource = Resource({**settings.attributes, **resource_of(service, instance)})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(**Receiver(settings).options),
            max_queue_size=_QUEUE,
            schedule_delay_millis=_DELAY_MS,
            max_export_batch_size=_BATCH,
        )
    )
    return provider


async def shut_down(provider: TracerProvider, within: float) -> None:
    """Sends what is left, as far as that can be done in so many seconds."""
    try:
        async with asyncio.timeout(within):
            await run_in_thread(provider.shutdown, "otlp shutdown")
    except TimeoutError:
        log.warning("the spans of the last requests were not sent: the receiver did not take them in time")


class MetricSender:
    """One connection to a receiver of OTLP."""

    def __init__(self, settings: MetricsSettings) -> None:
        # What it has to say of a failure is said once, by whoever asks for the export.
        logging.getLogger(OTLPMetricExporter.__module__).setLevel(logging.CRITICAL)
        self._receiver = Receiver(settings)
        self._exporter = OTLPMetricExporter(**self._receiver.options)

    async def send(self, data: MetricsData) -> str | None:
        """Sends the metrics within the settings' timeout. Returns None when they have arrived, else why not."""
        self._receiver.status = None
        result = await run_in_thread(lambda: self._exporter.export(data), "otlp metrics")
        if result is MetricExportResult.SUCCESS:
            return None
        return self._receiver.failure

    def close(self) -> None:
        """Ends a `send` that waits to try again."""
        self._exporter.shutdown()
