"""The names under which Prometheus knows the metrics: what its exporter makes of OpenTelemetry's."""

import re

from cadre.telemetry.metrics.names import Metric

_UNITS = {"s": "seconds", "By": "bytes", "1": ""}


def prometheus_name(metric: Metric) -> str:
    """The name of the metric family; a histogram's series append `_bucket`, `_sum` and `_count`."""
    unit = "" if metric.unit.startswith("{") else _UNITS[metric.unit]
    base = "_".join(part for part in (_plain(metric.name), unit) if part)
    return f"{base}_total" if metric.kind.endswith("counter") else base


def prometheus_label(attribute: str) -> str:
    """The name of the label for an attribute."""
    return _plain(attribute)


def _plain(name: str) -> str:
    return re.sub("[^a-zA-Z0-9:]+", "_", name)
