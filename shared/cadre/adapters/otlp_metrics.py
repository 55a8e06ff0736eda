"""Metrics to a receiver, by OpenTelemetry's own exporter for OTLP over HTTP."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from cadre.daemon_thread import run_in_thread
from cadre.settings import MetricsSettings

_COMPRESSION = {"none": Compression.NoCompression, "gzip": Compression.Gzip, "deflate": Compression.Deflate}


class MetricSender:
    """One connection to a receiver of OTLP."""

    def __init__(self, settings: MetricsSettings) -> None:
        # What it has to say of a failure is said once, by whoever asks for the export.
        logging.getLogger(OTLPMetricExporter.__module__).setLevel(logging.CRITICAL)
        session = requests.Session()
        # The environment's proxy is not asked for this machine's own addresses.
        session.trust_env = urlsplit(settings.endpoint).hostname not in ("127.0.0.1", "localhost", "::1")
        session.hooks["response"].append(self._note)
        self._status: int | None = None
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint,
            certificate_file=settings.certificate,
            client_key_file=settings.client_key,
            client_certificate_file=settings.client_certificate,
            headers=settings.headers,
            timeout=settings.timeout,
            compression=_COMPRESSION[settings.compression],
            session=session,
        )

    async def send(self, data: MetricsData) -> str | None:
        """None when they have arrived, else why not; within the settings' timeout."""
        self._status = None
        result = await run_in_thread(lambda: self._exporter.export(data), "otlp metrics")
        if result is MetricExportResult.SUCCESS:
            return None
        return f"it answers {self._status}" if self._status is not None else "it does not answer"

    def close(self) -> None:
        """Ends a `send` that waits to try again."""
        self._exporter.shutdown()

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code
