"""Dashboards, alerts, collector and profiles speak of metrics, labels and services that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.telemetry.metrics.names import METRICS
from cadre.telemetry.tracing import names
from harness.prometheus import prometheus_label, prometheus_name
from unit.test_deployment import COMPOSE, OURS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/cadre.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
COLLECTOR: dict[str, Any] = yaml.safe_load((DEPLOY / "otel/collector.yaml").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_CLUSTER: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/kubernetes-alerts.yml").read_text())
RULES = [rule for file in (ALERTS, OF_CLUSTER) for group in file["groups"] for rule in group["rules"]]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + [r["expr"] for r in RULES]

SERIES = {
    series: metric
    for metric in METRICS
    for series in (
        [f"{prometheus_name(metric)}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind == "histogram"
        else [prometheus_name(metric)]
    )
}
LABELS = {prometheus_label(name) for metric in METRICS for name in metric.attributes}
OF_PROMETHEUS = {
    "le",
    "instance",
    "exported_instance",
    "job",
    "service",
    "namespace",
    "pod",
    "container",
    "reason",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_there_is(expression: str) -> None:
    ours = set(re.findall(r"\b(?:cadre|gen_ai|error)_\w+", expression))
    assert ours <= set(SERIES) | LABELS
    for series, labels in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
        if series in SERIES:
            has = {prometheus_label(name) for name in SERIES[series].attributes} | {"le", "job", "pod"}
            assert set(re.findall(r"(\w+)\s*[!=]", labels)) <= has, series
    for by in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in by.split(",")} <= LABELS | OF_PROMETHEUS


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    left = {m.name for m in METRICS if prometheus_name(m) not in shown}
    assert left == {"gen_ai.invoke_agent.inference_calls", "gen_ai.invoke_agent.tool_calls"}


def test_what_gateways_all_tell_is_not_added_up() -> None:
    for expression in EXPRESSIONS:
        for metric in ("cadre_runs{", "cadre_queue_lag", "cadre_dead_letters", "cadre_approvals_waiting"):
            if metric in expression:
                assert "max" in expression, expression


def test_panels_know_their_datasource_and_their_place() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/cadre.yaml").read_text())
    uids = {source["uid"] for source in sources["datasources"]}
    assert {panel["datasource"]["uid"] for panel in PANELS} <= uids
    (to_trace,) = sources["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"]
    assert to_trace["datasourceUid"] in uids
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_a_panel_without_data_says_why() -> None:
    silent = [panel["title"] for panel in PANELS if not panel["fieldConfig"]["defaults"].get("noValue")]
    assert silent == []


def test_an_alert_says_what_to_do() -> None:
    for rule in RULES:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    page = (ROOT / "docs" / "observability.md").read_text()
    assert all(f"`{rule['alert']}`" in page for rule in RULES)


def test_every_service_of_ours_is_scraped_at_its_port() -> None:
    (scraped,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "cadre"]
    (found,) = scraped["dns_sd_configs"]
    without = {name for name, service in OURS.items() if service["command"][0] == "scripted-model"}
    assert set(found["names"]) == set(OURS) - without
    assert found["port"] == int(COMPOSE["x-environment"]["CADRE_PORT"])
    assert "bus" in COMPOSE["services"]["prometheus"]["networks"]


def test_the_collectors_pipelines_name_parts_that_it_has() -> None:
    connectors = set(COLLECTOR["connectors"])
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= set(COLLECTOR["receivers"]) | connectors
        assert set(pipeline["processors"]) <= set(COLLECTOR["processors"])
        assert set(pipeline["exporters"]) <= set(COLLECTOR["exporters"]) | connectors
        assert pipeline["processors"][0] == "memory_limiter"
    assert set(COLLECTOR["service"]["extensions"]) == set(COLLECTOR["extensions"])


def test_the_collector_acknowledges_no_span_that_only_its_memory_holds() -> None:
    traces = COLLECTOR["service"]["pipelines"]["traces"]
    assert not [name for name in traces["processors"] if name.startswith("batch")]
    senders = [COLLECTOR["exporters"][name] for name in traces["exporters"] if name in COLLECTOR["exporters"]]
    assert senders
    for sender in senders:
        queue = sender["sending_queue"]["storage"]
        assert queue in COLLECTOR["service"]["extensions"]
        folder = COLLECTOR["extensions"][queue]["directory"]
        mounts = [volume.split(":") for volume in COMPOSE["services"]["collector"]["volumes"]]
        assert [source in COMPOSE["volumes"] for source, target, *_ in mounts if target == folder] == [True]


def test_no_component_of_the_collector_has_a_deprecated_name() -> None:
    kinds = {name.partition("/")[0] for name in COLLECTOR["exporters"]}
    assert not kinds & {"otlp", "otlphttp", "logging"}


def test_content_that_a_span_may_have_is_dropped_on_the_way() -> None:
    dropped = {one["key"] for one in COLLECTOR["processors"]["attributes/drop_content"]["actions"]}
    ours = {
        names.INPUT_VALUE,
        names.OUTPUT_VALUE,
        names.OUTPUT_MESSAGES,
        names.TOOL_ARGUMENTS,
        names.TOOL_RESULT,
        names.QUERY_TEXT,
    }
    assert ours <= dropped


def test_dimensions_of_span_metrics_are_attributes_of_spans() -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    assert {one["name"] for one in COLLECTOR["connectors"]["spanmetrics"]["dimensions"]} <= known


PROFILED = {name: service for name, service in COMPOSE["services"].items() if "profiles" in service}


def test_profiles_are_complete_and_ask_for_nothing_by_default() -> None:
    def of(profile: str) -> set[str]:
        return {name for name, service in PROFILED.items() if profile in service["profiles"]}

    assert of("jaeger") == {"tracer", "jaeger"}
    assert of("full") == {"tracer", "collector", "tempo", "prometheus", "grafana"}
    for profile in ("jaeger", "full"):
        receivers = [
            name
            for name in of(profile)
            if isinstance(networks := COMPOSE["services"][name]["networks"], dict)
            and "traces" in (networks["telemetry"] or {}).get("aliases", [])
        ]
        assert len(receivers) == 1, "the tracer's endpoint is one of them"
    endpoint = COMPOSE["services"]["tracer"]["environment"]["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    assert endpoint == "http://traces:4318/v1/traces"


@pytest.mark.parametrize("name", PROFILED)
def test_what_a_profile_starts_is_pinned_and_confined(name: str) -> None:
    service = PROFILED[name]
    assert service["image"] == "cadre" or re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


# --- with Prometheus' own tool, where it is installed


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def run(*argv: str, cwd: Path) -> None:
    found = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_prometheus_takes_its_configuration(promtool: str, tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus/prometheus.yml").read_text().replace("/etc/prometheus/", "")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(DEPLOY / "prometheus/alerts.yml", tmp_path)
    run(promtool, "check", "config", "prometheus.yml", cwd=tmp_path)


def test_alerts_go_off_when_they_should(promtool: str) -> None:
    """Two gateways tell the same; one lost call is no reason, one every few minutes is."""
    run(promtool, "test", "rules", str(Path(__file__).parent / "alerts.yml"), cwd=ROOT)


def test_prometheus_reads_every_expression(promtool: str, tmp_path: Path) -> None:
    plain = [text.replace("$__rate_interval", "1m").replace("$agent", ".*") for text in EXPRESSIONS]
    rules = [{"record": f"expression_{n}", "expr": text} for n, text in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    run(promtool, "check", "rules", "rules.yml", cwd=tmp_path)
