"""Send spans and metrics to a receiver by OpenTelemetry's exporters for OTLP over HTTP."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import requests
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from cadre.adapters.addresses import is_loopback
from cadre.adapters.models.failure import retry_after
from cadre.recent import Recent
from cadre.settings import MetricsSettings, TracingSettings
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.telemetry.tracing.spans import SpanRecord
from cadre.tools.thread import run_in_thread

_COMPRESSION = {"none": Compression.NoCompression, "gzip": Compression.Gzip, "deflate": Compression.Deflate}

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope(names.SCOPE, names.VERSION, names.SCHEMA_URL)
_MOST_RESOURCES = 4096
_REFUSALS = (400, 413, 422)
"""Statuses of a receiver that refuses the spans themselves. Others may pass with time, even a wrong key or path."""

log = logging.getLogger("cadre.tracing")

_ASKS_FOR_TIME = (429, 503)

MOST_RETRY_AFTER = 300.0
"""The longest pause, in seconds, that a receiver is granted by its `Retry-After`."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between two tries with a receiver that does not say when to come back: twice as long each time."""

_DELAY_MS = 1000
_QUEUE = 8192
_BATCH = 256


_Answer = TypeVar("_Answer", bound=Message)


class Sent(NamedTuple):
    """The outcome of sending spans."""

    outcome: Literal["done", "later", "refused"]
    """`later`: the receiver has none of them, send the same ones again; `refused`: it will never take them."""
    rejected: int = 0
    """The number that it has refused for good although it accepted the others (`partial_success`)."""
    message: str = ""
    """Its reason for that."""
    retry_after: float = 0.0
    """Seconds for which the receiver asks to be left alone; 0 where it does not say."""


class Receiver:
    """A connection to the receiver that the settings describe."""

    def __init__(self, settings: TracingSettings) -> None:
        self.answer: requests.Response | None = None
        """Its last one; None when it gave none."""
        # The exporters log each failure; the sender reports once that the receiver has a problem.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
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
        """The arguments of an exporter."""

    @property
    def failure(self) -> str:
        """Return why the last request failed."""
        return f"it answers {self.answer.status_code}" if self.answer is not None else "it does not answer"

    def sent(self, result: SpanExportResult) -> Sent:
        """Return the outcome of an export that has just ended."""
        if result is SpanExportResult.SUCCESS:
            partial = self.partial(ExportTraceServiceResponse()).partial_success
            return Sent("done", partial.rejected_spans, partial.error_message)
        if self.answer is not None and self.answer.status_code in _REFUSALS:
            return Sent("refused")
        return Sent("later", retry_after=self._retry_after())

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.answer = response

    def partial(self, answer: _Answer) -> _Answer:
        """Return its last answer, read into `answer`: in JSON too, as some receivers answer whatever they are sent. An
        answer without a body of the protocol is empty: its status has said that the receiver has what was sent."""
        if self.answer is None or not self.answer.content:
            return answer
        try:
            if "json" in self.answer.headers.get("content-type", ""):
                json_format.Parse(self.answer.content, answer, ignore_unknown_fields=True)
            else:
                answer.ParseFromString(self.answer.content)
        except (DecodeError, json_format.ParseError):
            answer.Clear()
        return answer

    def _retry_after(self) -> float:
        if self.answer is None or self.answer.status_code not in _ASKS_FOR_TIME:
            return 0.0
        asked = retry_after(self.answer.headers, time.time())
        return min(asked or 0.0, MOST_RETRY_AFTER)


class SpanSender:
    """One connection to a receiver."""

    def __init__(self, settings: TracingSettings) -> None:
        self._attributes = settings.attributes
        self._receiver = Receiver(settings)
        self._exporter = OTLPSpanExporter(**self._receiver.options)
        self._resources = Recent[tuple[str, str, str], Resource](_MOST_RESOURCES)

    async def send(self, spans: Sequence[SpanRecord]) -> Sent:
        """Send all of the spans or none, within the settings' timeout. Not to be called twice at once."""
        batch = [readable(span, self._resource(span)) for span in spans]
        self._receiver.answer = None
        return self._receiver.sent(await run_in_thread(lambda: self._exporter.export(batch), "otlp"))

    @property
    def failure(self) -> str:
        """Return why the last request failed."""
        return self._receiver.failure

    def close(self) -> None:
        """End a `send` that waits to try again."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _resource(self, span: SpanRecord) -> Resource:
        key = (span.service, span.instance, span.version)
        resource = self._resources.get(key)
        if resource is None:
            resource = Resource(resource_of(*key, also=self._attributes))
        self._resources[key] = resource
        return resource


def readable(span: SpanRecord, resource: Resource) -> ReadableSpan:
    """Return the record as the SDK's exporters take it."""
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


class LiveSpans:
    """The tracer provider of a process for the spans of the process's requests, and the queue in which they wait.

    A batch is sent until the receiver accepts or refuses it; the newest spans are dropped once the queue is full.
    """

    def __init__(self, settings: TracingSettings, service: str, instance: str) -> None:
        resource = Resource(resource_of(service, instance, names.VERSION, settings.attributes))
        self._exporter = _RetryingExporter(settings)
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=_QUEUE,
                schedule_delay_millis=_DELAY_MS,
                max_export_batch_size=_BATCH,
            )
        )

    async def shut_down(self, within: float) -> None:
        """Send what is left once, within so many seconds."""
        self._exporter.closing.set()
        try:
            async with asyncio.timeout(within):
                await run_in_thread(self.provider.shutdown, "otlp shutdown")
        except TimeoutError:
            log.warning("the spans of the last requests were not sent: the receiver did not take them in time")


class _RetryingExporter(SpanExporter):
    """Sends each batch of a `BatchSpanProcessor` again until the receiver has it: that one drops what has failed."""

    def __init__(self, settings: TracingSettings) -> None:
        self._receiver = Receiver(settings)
        self._exporter = OTLPSpanExporter(**self._receiver.options)
        self.closing = threading.Event()
        """Set: a batch is tried once."""
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        pause = FIRST_PAUSE
        while True:
            self._receiver.answer = None
            sent = self._receiver.sent(self._exporter.export(spans))
            if sent.outcome != "later":
                self._settle(sent, len(spans))
                return SpanExportResult.SUCCESS
            if not self._failing:
                log.warning("the receiver of traces has a problem (%s): trying again", self._receiver.failure)
            self._failing = True
            if self.closing.wait(max(pause, sent.retry_after)):
                log.warning("%d spans of requests were not sent: %s", len(spans), self._receiver.failure)
                return SpanExportResult.FAILURE
            pause = min(2 * pause, LONGEST_PAUSE)

    def shutdown(self) -> None:
        self.closing.set()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _settle(self, sent: Sent, spans: int) -> None:
        lost = spans if sent.outcome == "refused" else sent.rejected
        if lost:
            log.error("%d spans of requests are lost: the receiver refuses them %s", lost, sent.message)
        if self._failing:
            log.info("the receiver of traces answers again")
        self._failing = False


class MetricSender:
    """One connection to a receiver of OTLP."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._receiver = Receiver(settings)
        self._exporter = OTLPMetricExporter(**self._receiver.options)

    async def send(self, data: MetricsData) -> str | None:
        """Send the metrics within the settings' timeout. Return None when all have arrived, else why not."""
        self._receiver.answer = None
        result = await run_in_thread(lambda: self._exporter.export(data), "otlp metrics")
        if result is not MetricExportResult.SUCCESS:
            return self._receiver.failure
        partial = self._receiver.partial(ExportMetricsServiceResponse()).partial_success
        if partial.rejected_data_points:
            return f"it refuses {partial.rejected_data_points} data points: {partial.error_message}"
        return None

    def close(self) -> None:
        """End a `send` that waits to try again."""
        self._exporter.shutdown()
