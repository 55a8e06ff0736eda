"""The names of all metrics, as dashboards and alerts of other people rely on them."""

import json
from pathlib import Path

import pytest

from cadre.adapters.otel_metrics import OtelForm
from cadre.telemetry.metrics.meters import MAX_PENDING, MAX_SERIES, Meters, Sample, SeriesKey
from cadre.telemetry.metrics.names import (
    AGENT,
    CLOCK_SKEW,
    COST,
    IN_FLIGHT,
    METRICS,
    QUEUE_KIND,
    QUEUE_NAME,
    STEPS,
    TOKEN_USAGE,
    Metric,
)
from harness.exposition import families, labels_of, series_of, total
from harness.prometheus import prometheus_label, prometheus_name

SNAPSHOT = Path(__file__).parent / "metrics.json"


def test_no_name_changes_unnoticed() -> None:
    """To change one is to break dashboards: then write the snapshot again and say so in the changelog."""
    now = {m.name: [m.kind, m.unit, prometheus_name(m), list(m.attributes)] for m in METRICS}
    assert now == json.loads(SNAPSHOT.read_text())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_exposed_under_the_name_that_we_say(metric: Metric) -> None:
    meters = Meters()
    form = OtelForm(meters, "service", "one", {})
    about = dict.fromkeys(metric.attributes, "x")
    seen = metric.kind.startswith("seen")
    if not seen:
        meters.record(metric, 1, about)
    text = form.text([Sample(metric, 1, about)] if seen else []).decode()
    assert set(families(text)) == {"target_info", prometheus_name(metric)}
    assert labels_of(text, prometheus_name(metric)) == {prometheus_label(name) for name in metric.attributes}


def test_both_ways_to_prometheus_give_a_metric_the_same_name() -> None:
    """By OTLP a gauge of the unit "1" would be `…_ratio` there, and alerts would look for another name."""
    assert [metric.name for metric in METRICS if metric.unit == "1"] == []


def test_no_attribute_is_an_id() -> None:
    """Each value would be a time series for ever."""
    for metric in METRICS:
        for name in metric.attributes:
            assert name.rpartition(".")[2] not in ("id", "run", "tree", "session", "call", "user", "instance")


def test_both_forms_tell_the_same() -> None:
    meters = Meters()
    form = OtelForm(meters, "service", "one", {"deployment.environment": "test"})
    meters.record(COST, 2, {"gen_ai.agent.name": "a", "gen_ai.request.model": "m"})
    meters.record(COST, 0.5, {"gen_ai.request.model": "m", "gen_ai.agent.name": "a"})
    for _ in range(2):
        text = form.text([]).decode()
        assert 'cadre_cost_total{gen_ai_agent_name="a",gen_ai_request_model="m"} 2.5' in text
        assert text.count("\ncadre_cost_total{") == 1
        (resource,) = form.data([]).resource_metrics
        assert resource.resource.attributes["service.instance.id"] == "one"
        (point,) = resource.scope_metrics[0].metrics[0].data.data_points
        assert getattr(point, "value", None) == 2.5


def test_agents_of_one_process_are_services_of_their_own_to_a_receiver() -> None:
    meters = Meters()
    form = OtelForm(meters, "agents", "one", {}, ["a", "b"])
    for agent in ("a", "b", "elsewhere"):
        meters.record(STEPS, 1, {AGENT: agent})
    in_hand = Sample(IN_FLIGHT, 3, {QUEUE_KIND: "agent", QUEUE_NAME: "b~1"})
    data = form.data([in_hand, Sample(CLOCK_SKEW, 0.5)])
    told = {
        (str(one.resource.attributes["service.name"]), metric.name, (point.attributes or {}).get(AGENT))
        for one in data.resource_metrics
        for metric in one.scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert told == {
        ("a", STEPS.name, "a"),
        ("b", STEPS.name, "b"),
        ("b", IN_FLIGHT.name, None),
        ("agents", STEPS.name, "elsewhere"),
        ("agents", CLOCK_SKEW.name, None),
    }
    text = form.text([in_hand]).decode()
    assert text.count("\ntarget_info{") == 1
    assert text.count("\ncadre_steps_total{") == 3


def test_a_histogram_adds_up_as_prometheus_wants_it() -> None:
    """A value that is just a bound belongs below it."""
    meters = Meters()
    for tokens in (1, 4, 5, 1e12):
        meters.record(TOKEN_USAGE, tokens, {"gen_ai.token.type": "input"})
    found = series_of(OtelForm(meters, "service", "one", {}).text([]).decode())
    name = "gen_ai_client_token_usage"
    below = {float(dict(labels)["le"]): value for (what, labels), value in found.items() if what == f"{name}_bucket"}
    assert (below[1], below[4], below[16], below[float("inf")]) == (1, 2, 3, 4)
    assert total(found, f"{name}_count") == 4
    assert total(found, f"{name}_sum") == 1e12 + 10


def test_series_have_an_end() -> None:
    """No matter what gives an attribute too many values, the process stays small and nothing is lost from the sum."""
    meters = Meters()
    for n in range(MAX_SERIES + 50):
        meters.record(COST, 1, {"gen_ai.agent.name": str(n)})
    assert len(list(meters)) == MAX_SERIES + 1
    (rest,) = [series for series in meters if series.attributes == {"otel.metric.overflow": "true"}]
    assert rest.sum == 50


def of_agent(agent: str) -> list[SeriesKey]:
    return [(STEPS, {AGENT: agent}), (COST, {AGENT: agent})]


@pytest.mark.parametrize("count", [1, MAX_PENDING, MAX_PENDING + 1])
def test_whoever_reads_misses_nothing(count: int) -> None:
    meters = Meters()
    meters.record(COST, 10, {AGENT: "a"})
    for _ in range(count):
        meters.record_all([(of_agent, ("a",), (1, 0.5))])
    assert {series.metric: series.sum for series in meters} == {STEPS: count, COST: 10 + count / 2}
    meters.record_all([(of_agent, ("a",), (1, 0.5)), (of_agent, ("b",), (1, 0.5))])
    sums = {(series.metric, series.attributes[AGENT]): series.sum for series in meters}
    assert sums[STEPS, "a"] == count + 1
    assert sums[STEPS, "b"] == 1


def test_series_by_labels_have_an_end_too() -> None:
    meters = Meters()
    for n in range(MAX_SERIES):
        meters.record_all([(of_agent, (str(n),), (1, 1))])
    # Two metrics: each has a series for the rest.
    assert len(list(meters)) == MAX_SERIES + 2
    assert sum(series.sum for series in meters) == 2 * MAX_SERIES


def test_what_is_off_is_not_counted() -> None:
    meters = Meters(on=False)
    meters.record(COST, 1)
    meters.record_all([(of_agent, ("a",), (1, 1))])
    assert not list(meters)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_on_the_page(metric: Metric) -> None:
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{metric.name}` |")]
    _, _, prometheus, kind, about, attributes, _ = row.split("|")
    assert (prometheus.strip(), about.strip()) == (f"`{prometheus_name(metric)}`", metric.about)
    assert kind.strip() == metric.kind.removeprefix("observable ")
    assert attributes.strip() == ", ".join(f"`{name}`" for name in metric.attributes)
