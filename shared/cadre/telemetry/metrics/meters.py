"""What a process counts, added up as it happens: reading it, in whatever form, is somebody else's matter.

OpenTelemetry's own instruments take many times as long, which a step would feel. So would it the attributes of all that
it adds, worked out each time: a journal's figures name them by a few labels, and find their series by these.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cadre.telemetry.metrics.names import Metric

NONE: Mapping[str, str] = {}

MOST_SERIES = 4000
"""Of one process. Who has more gets one for all of the rest, marked as the conventions have it."""

MOST_WAITING = 64
"""Figures that are added up in one go: after a single step, little of this is left in the processor's cache."""

OVERFLOW: Mapping[str, str] = {"otel.metric.overflow": "true"}


class Sample(NamedTuple):
    """A figure as it is at this moment."""

    metric: Metric
    value: float
    attributes: Mapping[str, str] = NONE


Named = tuple[Metric, Mapping[str, str]]
"""A series by what it measures and its attributes."""

SeriesOf = Callable[..., list[Named]]

Figures = tuple[SeriesOf, tuple[str, ...], tuple[float, ...]]
"""Values to be added, one for each series that the function names for these labels: the same ones for the same labels.
No NamedTuple: making one takes several times as long."""


class Series:
    """One metric with one set of attributes."""

    __slots__ = ("attributes", "bounds", "buckets", "count", "largest", "least", "metric", "sum")

    def __init__(self, metric: Metric, attributes: Mapping[str, str]) -> None:
        self.metric = metric
        self.attributes = dict(attributes)
        self.bounds = metric.bounds if metric.kind == "histogram" else None
        self.buckets = [0] * (len(metric.bounds) + 1)
        """Of a histogram: how many values each holds, the last one those above all bounds."""
        self.count = 0
        self.sum = 0.0
        self.least = float("inf")
        self.largest = float("-inf")

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        if self.bounds is not None:
            self.buckets[bisect_left(self.bounds, value)] += 1
            if value < self.least:
                self.least = value
            if value > self.largest:
                self.largest = value


class Meters:
    """One per process, for its event loop alone."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        """Whether it is worth working out what to record."""
        self.since = time.time_ns()
        self._series: dict[tuple[str, frozenset[tuple[str, str]]], Series] = {}
        self._found: dict[tuple[SeriesOf, tuple[str, ...]], list[Series]] = {}
        self._waiting: list[Figures] = []

    def __iter__(self) -> Iterator[Series]:
        self._add_up()
        return iter(self._series.values())

    def record(self, metric: Metric, value: float, attributes: Mapping[str, str] = NONE) -> None:
        if self.on:
            self._of(metric, attributes).add(value)

    def record_all(self, figures: list[Figures]) -> None:
        if not self.on:
            return
        self._waiting += figures
        if len(self._waiting) >= MOST_WAITING:
            self._add_up()

    def _add_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for series_of, labels, values in waiting:
            found = self._found.get((series_of, labels))
            if found is None:
                found = [self._of(*named) for named in series_of(*labels)]
                if len(self._found) < MOST_SERIES:
                    self._found[series_of, labels] = found
            for series, value in zip(found, values, strict=True):
                series.add(value)

    def _of(self, metric: Metric, attributes: Mapping[str, str]) -> Series:
        series = self._series.get(_key(metric, attributes))
        if series is not None:
            return series
        if len(self._series) >= MOST_SERIES:
            attributes = OVERFLOW
        return self._series.setdefault(_key(metric, attributes), Series(metric, attributes))


def _key(metric: Metric, attributes: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric.name, frozenset(attributes.items())
