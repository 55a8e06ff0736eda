"""Metrics to a receiver, by OpenTelemetry's own exporter for OTLP over HTTP."""

import logging

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from cadre.adapters.otel.otlp_receiver import Receiver
from cadre.settings import MetricsSettings
from cadre.tools.thread import run_in_thread


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
