"""Spans of what a process does at the moment, such as answering a request: the SDK's ordinary ones."""

import asyncio
import logging

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from cadre.adapters.otel.otlp_receiver import Receiver
from cadre.settings import TracingSettings
from cadre.telemetry.tracing.otlp_json import resource_of
from cadre.tools.thread import run_in_thread

log = logging.getLogger("cadre.tracing")

_DELAY_MS = 1000
_QUEUE = 8192
_BATCH = 256


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
