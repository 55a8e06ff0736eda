"""The Helm chart as Helm renders it: the operator as the code renders it, NATS and Qdrant as the overlay has them."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cadre.deploy.k8s.render import NAME, operator_manifests
from cadre.deploy.k8s.values import read_values
from harness.nats_server import nats_binary
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
    """Return what Helm prints. `make test-helm` says where it is."""
    binary = os.environ["HELM"]
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise ValueError(done.stdout + done.stderr)
    return done.stdout


def rendered(*settings: str, namespace: str = "prod", files: Sequence[Path] = ()) -> list[Manifest]:
    options = [part for one in settings for part in ("--set", one)]
    options += [part for one in files for part in ("-f", str(one))]
    text = helm("template", "cadre", CHART, "--namespace", namespace, "--kube-version", "1.30.0", *options)
    return [one for one in yaml.safe_load_all(text) if one]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name]
    return found


def values_of_operator(manifests: list[Manifest]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(named(manifests, "ConfigMap", NAME)["data"]["values.yaml"])
    return found


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
    memory = {"enabled": True, "engine": "qdrant"}
    layer = {"image": "cadre:9", "keda": False, "memory": memory, "pools": ["default"]}
    values = read_values(layer, {"namespace": "prod"})
    wanted = operator_manifests(values, yaml.safe_dump(layer), namespaces)
    found = rendered(f"operator.everywhere={everywhere}", "cadre.image=cadre:9")
    for one in wanted:
        [same] = [m for m in of_kind(found, one["kind"]) if m["metadata"]["name"] == one["metadata"]["name"]]
        if one["kind"] == "ConfigMap":
            assert yaml.safe_load(same["data"]["values.yaml"]) == layer
            continue
        if one["kind"] == "Deployment":
            for each in (one, same):
                assert each["spec"]["template"]["metadata"].pop("annotations")["cadre.dev/values-hash"]
            assert same["spec"]["template"]["spec"].pop("imagePullSecrets") == []
        assert same == one


def test_nats_and_qdrant_are_those_of_the_overlay_or_somebody_elses() -> None:
    own, overlay = rendered(), ROOT / "deploy" / "k8s" / "dev"
    assert named(own, "ConfigMap", "nats")["data"]["nats.conf"] == (overlay / "nats.conf").read_text()
    digest = named(own, "StatefulSet", "nats")["spec"]["template"]["metadata"].pop("annotations")
    assert set(digest) == {"cadre.dev/config-hash"}
    for name in ("nats", "qdrant"):
        text = (overlay / f"{name}.yaml").read_text()
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


def test_a_gateway_may_be_below_a_path() -> None:
    manifests = rendered(*ALL, "gateway.path=/agents")
    [ingress] = of_kind(manifests, "Ingress")
    assert [path["path"] for path in ingress["spec"]["rules"][0]["http"]["paths"]] == ["/agents"]
    [route] = of_kind(manifests, "HTTPRoute")
    assert route["spec"]["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/agents"}}]
    assert values_of_operator(manifests)["gateway"] == {"path": "/agents"}


def test_alerts_and_dashboard_are_those_of_the_compose_file() -> None:
    manifests = rendered(*ALL)
    [rules] = of_kind(manifests, "PrometheusRule")
    files = [ROOT / "deploy" / "prometheus" / name for name in ("alerts.yml", "kubernetes-alerts.yml")]
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    here = json.dumps(groups).replace('namespace=\\"cadre\\"', 'namespace=\\"prod\\"')
    assert rules["spec"]["groups"] == json.loads(here)
    assert 'namespace="cadre"' not in str(rules)
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


def test_a_rendering_is_the_same_each_time_and_needs_no_cluster() -> None:
    assert rendered() == rendered()
    assert not [*of_kind(rendered(), "Secret")], "the operator makes the administrator's key"


def test_a_chart_has_no_links_out_of_its_folder() -> None:
    assert not [one for one in CHART.rglob("*") if one.is_symlink()]


def test_the_administrators_secret_may_be_ones_own() -> None:
    assert "gateway" not in values_of_operator(rendered())
    own = values_of_operator(rendered("gateway.existingSecret=mine", "cadre.workloads.gateway.replicas=3"))
    assert own["gateway"] == {"secret": "mine"}
    assert read_values(own).gateway.secret == "mine"
    assert read_values(own).workload("gateway").replicas == 3


def test_nats_has_values() -> None:
    manifests = rendered(
        "nats.image=mirror.example/nats:9,nats.storage.size=50Gi,nats.storage.className=fast",
        "nats.resources.requests.cpu=2,nats.pod.priorityClassName=high,nats.pod.nodeSelector.disk=ssd",
        "qdrant.storage.className=fast,qdrant.resources.limits.memory=9Gi",
    )
    nats = named(manifests, "StatefulSet", "nats")["spec"]
    pod = nats["template"]["spec"]
    [server] = [one for one in pod["containers"] if one["name"] == "nats"]
    assert (server["image"], server["resources"]["requests"]["cpu"]) == ("mirror.example/nats:9", 2)
    assert (pod["priorityClassName"], pod["nodeSelector"]) == ("high", {"disk": "ssd"})
    claim = nats["volumeClaimTemplates"][0]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "50Gi")
    qdrant = named(manifests, "StatefulSet", "qdrant")["spec"]
    assert qdrant["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert qdrant["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "9Gi"


def test_a_changed_configuration_restarts_nats_and_nothing_else_does() -> None:
    def digest(*settings: str) -> str:
        nats = named(rendered(*settings), "StatefulSet", "nats")
        return str(nats["spec"]["template"]["metadata"]["annotations"]["cadre.dev/config-hash"])

    assert digest() == digest("cadre.image=cadre:2", "nats.image=nats:9", "gateway.existingSecret=mine")
    assert len({digest(), digest("nats.config.lame_duck_duration=31s"), digest("nats.replicas=3")}) == 3


@pytest.mark.parametrize("replicas", ["1", "3"])
def test_nats_takes_its_configuration(replicas: str, tmp_path: Path) -> None:
    changes = {
        "max_payload": "2MB",
        "debug": True,
        "jetstream": {"max_file_store": "8GB"},
        "write_deadline": "10s",
    }
    text = json.dumps({"nats": {"config": changes}})
    (tmp_path / "values.yaml").write_text(text)
    manifests = rendered(f"nats.replicas={replicas}", files=[tmp_path / "values.yaml"])
    written = named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    (tmp_path / "nats.conf").write_text(written)
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "auth.conf").write_text("")
    argv = [str(nats_binary()), "-t", "-c", str(tmp_path / "nats.conf")]
    environment = {**os.environ, "SERVER_NAME": "nats-0"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "sync_interval: " in written, "a key of jetstream leaves the others as they are"


@pytest.mark.parametrize(
    ("settings", "sync"),
    [
        (["nats.replicas=1"], "always"),
        (["nats.replicas=3"], "100ms"),
        (["nats.replicas=5"], "100ms"),
        (["nats.replicas=3", "cadre.nats.replicas=1"], "always"),
        (["nats.replicas=3", "nats.config.jetstream.sync_interval=always"], "always"),
        (["nats.replicas=1", "nats.config.jetstream.sync_interval=10s"], "10s"),
    ],
)
def test_streams_of_three_copies_are_synced_at_an_interval(settings: list[str], sync: str) -> None:
    """And those of one copy before they are acknowledged: there is no other server that has them in memory."""
    written = named(rendered(*settings), "ConfigMap", "nats")["data"]["nats.conf"]
    assert re.findall(r"sync_interval: (\S+)", written) == [sync]


@pytest.mark.parametrize(("servers", "path"), [(1, "/healthz"), (3, "/healthz?js-enabled-only=true")])
def test_one_server_whose_streams_refuse_writes_is_started_again(servers: int, path: str) -> None:
    """One of several fails the whole check as long as it catches up with the others."""
    found = rendered(f"nats.replicas={servers}", "nats.storage.size=7Gi")
    pod = named(found, "StatefulSet", "nats")["spec"]["template"]["spec"]
    [server] = [one for one in pod["containers"] if one["name"] == "nats"]
    assert server["livenessProbe"]["httpGet"]["path"] == path
    # Without a limit a server that starts on a full disk takes what is free for all that it may use.
    assert "max_file_store: 7Gi" in named(found, "ConfigMap", "nats")["data"]["nats.conf"]


def test_three_servers_have_three_copies_of_each_stream() -> None:
    manifests = rendered("nats.replicas=3")
    nats = named(manifests, "StatefulSet", "nats")["spec"]
    assert (nats["replicas"], nats["podManagementPolicy"]) == (3, "Parallel")
    assert values_of_operator(manifests)["nats"] == {"replicas": 3}
    assert values_of_operator(rendered("nats.replicas=3", "cadre.nats.replicas=1"))["nats"] == {"replicas": 1}
    assert "nats" not in values_of_operator(rendered("nats.replicas=3", "nats.enabled=false"))
    assert named(manifests, "PodDisruptionBudget", "nats")["spec"]["maxUnavailable"] == 1
    store = named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    assert 'store_dir: "/data/cluster"' in store, "servers of a cluster remove the streams that a single one has kept"
    with pytest.raises(ValueError, match="nats"):
        rendered("nats.replicas=2")


@pytest.mark.parametrize("image", ["cadre:9", "ghcr.io/some/cadre:9", "localhost:5000/cadre:9"])
def test_one_value_moves_every_image(image: str) -> None:
    plain = {*images(rendered(f"cadre.image={image}"))}
    moved = rendered(
        f"cadre.image={image}", "global.registry=mirror.example/all", "global.imagePullSecrets[0].name=pull"
    )
    found = {*images(moved)}
    assert len(found) == len(plain) == 4
    assert all(one.startswith("mirror.example/all/") for one in found), found
    assert not any("ghcr.io" in one or "localhost" in one for one in found)
    assert values_of_operator(moved)["image"] in found
    pods = [one["spec"]["template"]["spec"] for one in moved if one["kind"] in ("StatefulSet", "Deployment")]
    pods.append(read_values(values_of_operator(moved)).workload("agent/any").pod)
    assert all(pod["imagePullSecrets"] == [{"name": "pull"}] for pod in pods)


def images(manifests: list[Manifest]) -> Iterator[str]:
    for one in manifests:
        if one["kind"] in ("StatefulSet", "Deployment"):
            yield from (container["image"] for container in one["spec"]["template"]["spec"]["containers"])


def test_embedded_memories_need_no_qdrant() -> None:
    manifests = rendered("cadre.memory.engine=embedded", "cadre.memory.storage.size=3Gi")
    assert [one["metadata"]["name"] for one in of_kind(manifests, "StatefulSet")] == ["nats"]
    values = read_values(values_of_operator(manifests))
    assert values.embeds_memories
    assert values.memory_service.storage.size == "3Gi"
    assert [one["metadata"]["name"] for one in of_kind(rendered("cadre.memory=true"), "StatefulSet")] == [
        "nats",
        "qdrant",
    ]


async def test_what_the_chart_installs_runs_agents(api: ApiServer, stopped: OperatorProcess, tmp_path: Path) -> None:
    manifests = rendered(
        "cadre.telemetry.url=http://otel:4318,cadre.model.url=https://models.example/v1,cadre.model.name=m",
        namespace="cadre",
    )
    for one in manifests:
        if one["kind"] in ("Team", "ConfigMap"):
            await put(api, one)
    [settings] = [m["data"]["values.yaml"] for m in of_kind(manifests, "ConfigMap") if m["metadata"]["name"] == NAME]
    (tmp_path / "values.yaml").write_text(settings)
    await stopped.start("--namespace", "cadre")
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await becomes(api, "Team", "cadre", type="Accepted", status="True")
    [admin] = [one for one in api.all("Secret") if one["metadata"]["name"] == "cadre-gateway"]
    assert [one["kind"] for one in admin["metadata"]["ownerReferences"]] == ["Team"]
    names = {one["metadata"]["name"] for one in api.all("Deployment")}
    assert names == {"gateway", "memory", "sandbox-default", "tracer", "agent-one"}
