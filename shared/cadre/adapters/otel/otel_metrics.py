"""Metrics in OpenTelemetry's form, and as Prometheus' text; loaded when somebody reads them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from cadre.telemetry.metrics.meters import Meters, Sample, Series
from cadre.telemetry.metrics.names import METRICS, Metric
from cadre.telemetry.tracing.names import SCHEMA_URL, SCOPE
from cadre.telemetry.tracing.otlp_json import resource_of

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_SCOPE = InstrumentationScope(SCOPE, schema_url=SCHEMA_URL)
_CUMULATIVE = otel.AggregationTemporality.CUMULATIVE


class OtelForm:
    """Makes OpenTelemetry's metrics of the sums of one process, and of samples taken beside them."""

    def __init__(self, meters: Meters, service: str, instance: str, attributes: Mapping[str, str]) -> None:
        self._meters = meters
        self._resource = Resource({**attributes, **resource_of(service, instance)})
        self._registry = CollectorRegistry()
        self._reader = _MetricReader(self._registry)

    def text(self, samples: list[Sample]) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        self._reader.source = lambda: self.data(samples)
        return generate_latest(self._registry)

    def data(self, samples: list[Sample]) -> otel.MetricsData:
        """Returns all series and the samples as the SDK has metrics."""
        now = time.time_ns()
        points: dict[str, list[Any]] = {}
        for series in self._meters:
            points.setdefault(series.metric.name, []).append(self._counted(series, now))
        for sample in samples:
            points.setdefault(sample.metric.name, []).append(self._seen(sample, now))
        metrics = [_metric(metric, points[metric.name]) for metric in METRICS if metric.name in points]
        scope = otel.ScopeMetrics(_SCOPE, metrics, SCHEMA_URL)
        return otel.MetricsData([otel.ResourceMetrics(self._resource, [scope], SCHEMA_URL)])

    def _counted(self, series: Series, now: int) -> otel.HistogramDataPoint | otel.NumberDataPoint:
        if series.metric.kind != "histogram":
            return otel.NumberDataPoint(series.attributes, self._meters.since, now, series.sum)
        return otel.HistogramDataPoint(
            attributes=series.attributes,
            start_time_unix_nano=self._meters.since,
            time_unix_nano=now,
            count=series.count,
            sum=series.sum,
            bucket_counts=list(series.buckets),
            explicit_bounds=series.metric.bounds,
            min=series.least,
            max=series.largest,
        )

    def _seen(self, sample: Sample, now: int) -> otel.NumberDataPoint:
        return otel.NumberDataPoint(dict(sample.attributes), self._meters.since, now, sample.value)


def _metric(metric: Metric, points: list[Any]) -> otel.Metric:
    data: otel.Histogram | otel.Sum | otel.Gauge
    match metric.kind:
        case "histogram":
            data = otel.Histogram(points, _CUMULATIVE)
        case "observable gauge":
            data = otel.Gauge(points)
        case _:
            data = otel.Sum(points, _CUMULATIVE, is_monotonic=True)
    return otel.Metric(metric.name, metric.about, metric.unit, data)


class _MetricReader(PrometheusMetricReader):
    """Writes what `source` gives, where its base class would ask the SDK's instruments."""

    source: Callable[[], otel.MetricsData]

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry=registry, scope_info_enabled=False)
        # Where a MeterProvider of the SDK would register itself.
        self._set_collect_callback(lambda *_, **__: self.source())
