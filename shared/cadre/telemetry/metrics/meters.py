"""The sums and histograms of one process. They are added up here and exported elsewhere.

OpenTelemetry's own instruments take many times as long, which would slow every step down. So would computing the
attributes for each value: the measurements of a journal entry carry a few labels, by which their series are found.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cadre.telemetry.metrics.names import Metric

NONE: Mapping[str, str] = {}

MAX_SERIES = 4000
"""Series of one process. All further ones are added up in one, marked as the conventions prescribe."""

MAX_PENDING = 64
"""Measurements that are added up in one batch: one at a time, each would find the processor's cache cold."""

OVERFLOW: Mapping[str, str] = {"otel.metric.overflow": "true"}


class Sample(NamedTuple):
    """The value of an observable metric at this moment."""

    metric: Metric
    value: float
    attributes: Mapping[str, str] = NONE


SeriesKey = tuple[Metric, Mapping[str, str]]
"""A metric and a set of attributes, which together name a series."""

SeriesKeys = Callable[..., list[SeriesKey]]

Measurements = tuple[SeriesKeys, tuple[str, ...], tuple[float, ...]]
"""A function, labels, and values: one value for each series that the function returns for the labels, which must be the
same ones each time. This is no NamedTuple, because making one takes several times as long."""


class Series:
    """One metric with one set of attributes."""

    __slots__ = ("attributes", "bounds", "buckets", "count", "largest", "least", "metric", "sum")

    def __init__(self, metric: Metric, attributes: Mapping[str, str]) -> None:
        self.metric = metric
        self.attributes = dict(attributes)
        self.bounds = metric.bounds if metric.kind == "histogram" else None
        self.buckets = [0] * (len(metric.bounds) + 1)
        """The number of values in each bucket of a histogram; the last bucket is for those above all bounds."""
        self.count = 0
        self.sum = 0.0
        self.least = float("inf")
        self.largest = float("-inf")

    def add(self, value: float) -> None:
        """Count a value, in the unit of the metric."""
        self.count += 1
        self.sum += value
        if self.bounds is not None:
            self.buckets[bisect_left(self.bounds, value)] += 1
            if value < self.least:
                self.least = value
            if value > self.largest:
                self.largest = value


class Meters:
    """All series of one process. Not thread-safe: for its event loop alone."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        """True if metrics are counted; if not, callers need not compute what to record."""
        self.since = time.time_ns()
        self._series: dict[tuple[str, frozenset[tuple[str, str]]], Series] = {}
        self._by_labels: dict[tuple[SeriesKeys, tuple[str, ...]], list[Series]] = {}
        self._pending: list[Measurements] = []

    def __iter__(self) -> Iterator[Series]:
        self._flush()
        return iter(self._series.values())

    def record(self, metric: Metric, value: float, attributes: Mapping[str, str] = NONE) -> None:
        """Count one value, in the unit of the metric."""
        if self.on:
            self._series_of(metric, attributes).add(value)

    def record_all(self, measurements: list[Measurements]) -> None:
        """Count the measurements of a journal entry, some of them later in a batch."""
        if not self.on:
            return
        self._pending += measurements
        if len(self._pending) >= MAX_PENDING:
            self._flush()

    def _flush(self) -> None:
        waiting, self._pending = self._pending, []
        for series_of, labels, values in waiting:
            found = self._by_labels.get((series_of, labels))
            if found is None:
                found = [self._series_of(*named) for named in series_of(*labels)]
                if len(self._by_labels) < MAX_SERIES:
                    self._by_labels[series_of, labels] = found
            for series, value in zip(found, values, strict=True):
                series.add(value)

    def _series_of(self, metric: Metric, attributes: Mapping[str, str]) -> Series:
        series = self._series.get(_key(metric, attributes))
        if series is not None:
            return series
        if len(self._series) >= MAX_SERIES:
            attributes = OVERFLOW
        return self._series.setdefault(_key(metric, attributes), Series(metric, attributes))


def _key(metric: Metric, attributes: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric.name, frozenset(attributes.items())
