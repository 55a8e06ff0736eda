"""The Helm chart as Helm renders it: the operator as the code renders it, NATS and Qdrant as the overlay has them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cadre.deploy.k8s.operator import NAME, operator_manifests
from cadre.deploy.k8s.values import read_values
from kube.api_server import ApiServer
from kube.conftest import OperatorProcess, api, stopped
from kube.objects import agent, becomes, put

__all__ = ["api", "stopped"]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "cadre"
NOT_OF_KUBERNETES = ("Team", "PodMonitor", "PrometheusRule", "HTTPRoute")
ALL = [
    "gateway.ingress.enabled=true,gateway.ingress.host=cadre.example,gateway.ingress.tls=cert",
    "gateway.httpRoute.enabled=true,gateway.httpRoute.parentRefs[0].name=public",
    "monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.dashboard.enabled=true",
]
Manifest = dict[str, Any]


def helm(*arguments: str | Path) -> str:
    """What Helm prints. `make test-helm` says where it is."""
    binary = os.environ["HELM"]
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise ValueError(done.stdout + done.stderr)
    return done.stdout


def rendered(*settings: str, namespace: str = "prod") -> list[Manifest]:
    options = [part for one in settings for part in ("--set", one)]
    text = helm("template", "cadre", CHART, "--namespace", namespace, "--kube-version", "1.30.0", *options)
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(manifests: list[Manifest], kind: str) -> Iterator[Manifest]:
    return (one for one in manifests if one["kind"] == kind)


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.parametrize("minor", ["1.27", "1.37"])
def test_every_manifest_is_strictly_valid(minor: str) -> None:
    for manifest in rendered(*ALL, "operator.everywhere=true"):
        if manifest["kind"] not in NOT_OF_KUBERNETES:
            kubernetes_validate.validate(manifest, minor, strict=True)


@pytest.mark.parametrize(("everywhere", "namespaces"), [("true", []), ("false", ["prod"])])
def test_the_operator_is_that_of_the_command_line(everywhere: str, namespaces: list[str]) -> None:
    layer = {"image": "cadre:9", "keda": False, "memory": True, "pools": ["default"]}
    values = read_values(layer, {"namespace": "prod"})
    wanted = operator_manifests(values, yaml.safe_dump(layer), namespaces)
    text = json.dumps(rendered(f"operator.everywhere={everywhere}", "cadre.image=cadre:9"))
    found = json.loads(text.replace(f"{NAME}-prod", NAME))
    for one in wanted:
        [same] = [m for m in of_kind(found, one["kind"]) if m["metadata"]["name"] == NAME]
        if one["kind"] == "ConfigMap":
            assert yaml.safe_load(same["data"]["values.yaml"]) == layer
            continue
        if one["kind"] == "Deployment":
            for each in (one, same):
                assert each["spec"]["template"]["metadata"].pop("annotations")["cadre.dev/values-hash"]
        assert same == one


def test_nats_and_qdrant_are_those_of_the_overlay_or_somebody_elses() -> None:
    own = rendered()
    for name in ("nats", "qdrant"):
        text = (ROOT / "deploy" / "k8s" / "dev" / f"{name}.yaml").read_text()
        for one in yaml.safe_load_all(text.replace("namespace: cadre", "namespace: prod")):
            assert one in own
    without = rendered("nats.enabled=false,qdrant.enabled=false")
    assert not [*of_kind(without, "StatefulSet")]


def test_doors_lead_to_the_gateway() -> None:
    manifests = rendered(*ALL, "cadre.instance=one")
    [ingress] = of_kind(manifests, "Ingress")
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert (rule["host"], path["backend"]["service"]["name"]) == ("cadre.example", "one-gateway")
    assert ingress["spec"]["tls"] == [{"hosts": ["cadre.example"], "secretName": "cert"}]
    [route] = of_kind(manifests, "HTTPRoute")
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "one-gateway", "port": 80}]
    with pytest.raises(ValueError, match=r"gateway\.ingress\.host: name the host"):
        rendered("gateway.ingress.enabled=true")
    with pytest.raises(ValueError, match=r"gateway\.httpRoute\.parentRefs: name a Gateway"):
        rendered("gateway.httpRoute.enabled=true")


def test_alerts_and_dashboard_are_those_of_the_compose_file() -> None:
    manifests = rendered(*ALL)
    [rules] = of_kind(manifests, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    [board] = [m for m in of_kind(manifests, "ConfigMap") if m["metadata"]["name"] == "cadre-dashboard"]
    file = ROOT / "deploy" / "grafana" / "dashboards" / "cadre.json"
    assert json.loads(board["data"]["cadre.json"]) == json.loads(file.read_text())


@pytest.mark.parametrize(
    "wrong",
    [
        "cadre.imag=x",
        "cadre.nats.shards=many",
        "gatewy.x=1",
        "cadre.workloads=3",
        "cadre.workloads.gateway.drian=3",
        "cadre.workloads.gateway.scale.mim=3",
        "cadre.namespace=other",
    ],
)
def test_a_value_that_nothing_reads_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="meet the specifications"):
        rendered(wrong)


def test_values_of_workloads_are_those_of_the_renderer() -> None:
    given = ["replicas=3", "env.A=b", "pod.runtimeClassName=gvisor", "hosts={a.example}", "scale.max=3"]
    of_gateway = ",".join(f"cadre.workloads.gateway.{one}" for one in given)
    manifests = rendered(of_gateway)
    [found] = [m for m in of_kind(manifests, "ConfigMap") if m["metadata"]["name"] == NAME]
    assert yaml.safe_load(found["data"]["values.yaml"])["workloads"]["gateway"]["scale"] == {"max": 3}


async def test_what_the_chart_installs_runs_agents(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    manifests = rendered(
        "cadre.telemetry.url=http://otel:4318,cadre.model.url=https://models.example/v1,cadre.model.name=m",
        namespace="cadre",
    )
    for one in manifests:
        if one["kind"] in ("Team", "Secret", "ConfigMap"):
            await put(api, one)
    [settings] = [
        m["data"]["values.yaml"] for m in of_kind(manifests, "ConfigMap") if m["metadata"]["name"] == NAME
    ]
    (tmp_path / "values.yaml").write_text(settings)
    await stopped.start("--namespace", "cadre")
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await becomes(api, "Team", "cadre", type="Accepted", status="True")
    names = {one["metadata"]["name"] for one in api.all("Deployment")}
    assert names == {"gateway", "memory", "sandbox-default", "tracer", "agent-one"}
