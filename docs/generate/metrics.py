"""The table of metrics on the page of observability."""

from cadre.telemetry.metrics.names import METRICS, Metric

_UNITS = {"s": "_seconds", "By": "_bytes"}


def table() -> str:
    """Return a row for each metric, in the order of their definitions."""
    rows = ["| metric | in Prometheus | kind | what | attributes |", "|---|---|---|---|---|"]
    for metric in METRICS:
        attributes = ", ".join(f"`{name}`" for name in metric.attributes)
        kind = metric.kind.removeprefix("observable ")
        rows.append(f"| `{metric.name}` | `{_exposed(metric)}` | {kind} | {metric.about} | {attributes} |")
    return "\n".join(rows)


def _exposed(metric: Metric) -> str:
    """Return the name in Prometheus' text format."""
    total = "_total" if metric.kind.endswith("counter") else ""
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "") + total
