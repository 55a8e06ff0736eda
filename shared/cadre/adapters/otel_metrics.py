"""Write metrics in OpenTelemetry's form and as Prometheus' text; imported only when metrics are read."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from cadre.protocol.rollout import slot_of
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters, Sample, Series
from cadre.telemetry.metrics.names import METRICS, Metric
from cadre.telemetry.tracing.names import SCHEMA_URL, SCOPE
from cadre.telemetry.tracing.otlp_json import resource_of

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_SCOPE = InstrumentationScope(SCOPE, schema_url=SCHEMA_URL)
_TOOLS = "tools"
"""The service that a process of tools is: each tool has its own name in spans, and so in metrics."""

_CUMULATIVE = otel.AggregationTemporality.CUMULATIVE


class OtelForm:
    """Makes OpenTelemetry's metrics of the sums of one process, and of samples taken along with them."""

    def __init__(
        self,
        meters: Meters,
        service: str,
        instance: str,
        attributes: Mapping[str, str],
        agents: Sequence[str] = (),
    ) -> None:
        """`agents` are those that the process hosts."""
        self._meters = meters
        self._service = service
        self._instance, self._attributes = instance, attributes
        self._resources = {name: self._resource(name) for name in (service, *agents)}
        self._registry = CollectorRegistry()
        self._reader = _MetricReader(self._registry)

    def text(self, samples: list[Sample]) -> bytes:
        """Return the metrics in Prometheus' text format: a process is one target, regardless of what it hosts."""
        self._reader.source = lambda: self._data(samples, lambda _: self._service)
        return generate_latest(self._registry)

    def data(self, samples: list[Sample]) -> otel.MetricsData:
        """Return all series and the samples as the SDK has metrics, those of an agent that the process hosts below
        the agent's own name, which its spans have too."""
        return self._data(samples, self._owner)

    def _data(self, samples: list[Sample], owner: Callable[[Mapping[str, str]], str]) -> otel.MetricsData:
        now = time.time_ns()
        points: dict[tuple[str, str], list[Any]] = {}
        for series in self._meters:
            place = owner(series.attributes), series.metric.name
            points.setdefault(place, []).append(self._counted(series, now))
        for sample in samples:
            place = owner(sample.attributes), sample.metric.name
            points.setdefault(place, []).append(self._seen(sample, now))
        return otel.MetricsData(
            [
                otel.ResourceMetrics(resource, [otel.ScopeMetrics(_SCOPE, metrics, SCHEMA_URL)], SCHEMA_URL)
                for service, resource in self._resources.items()
                if (
                    metrics := [
                        _metric(metric, points[service, metric.name])
                        for metric in METRICS
                        if (service, metric.name) in points
                    ]
                )
            ]
        )

    def _owner(self, attributes: Mapping[str, str]) -> str:
        """Return the name of the service that such a series is of."""
        owner, kind = attributes.get(names.AGENT), attributes.get(names.QUEUE_KIND)
        if kind == "tool" and self._service == _TOOLS:
            return self._of_tool(attributes[names.QUEUE_NAME])
        if kind == "agent":
            owner = slot_of(attributes[names.QUEUE_NAME])[0]
        return owner if owner in self._resources else self._service

    def _resource(self, service: str) -> Resource:
        return Resource(resource_of(service, self._instance, also=self._attributes))

    def _of_tool(self, tool: str) -> str:
        if tool not in self._resources:
            self._resources[tool] = self._resource(tool)
        return tool

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
