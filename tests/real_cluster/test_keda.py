"""KEDA counts the pods of agents: it takes a number over as it is, and wakes what is at zero."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harness.patience import eventually, patience
from real_cluster.cluster import Cluster
from real_cluster.conftest import Place
from real_cluster.programs import KEDA

MANY = 5
SPEC = {"description": "Answers.", "kind": "tool_calling", "limits": {"max_steps": 3}}


def _program(name: str, image: str, arguments: list[str]) -> dict[str, Any]:
    """A Deployment of one of KEDA's programs, with the certificates that its operator makes."""
    container = {
        "name": "main",
        "image": f"{image}:{KEDA}",
        "imagePullPolicy": "Never",
        "args": arguments,
        "env": [{"name": "POD_NAMESPACE", "value": "keda"}, {"name": "WATCH_NAMESPACE", "value": ""}],
        "volumeMounts": [
            {"name": "certs", "mountPath": "/certs", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    certs = {"secretName": "kedaorg-certs", "optional": name == "keda-operator"}
    pod = {
        "serviceAccountName": "keda-operator",
        "containers": [container],
        "volumes": [{"name": "certs", "secret": certs}, {"name": "tmp", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _named(name), "spec": spec}


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "keda", "labels": {"app": name}}


def _service(name: str, port: int, target: int) -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": [{"port": port, "targetPort": target}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _named(name), "spec": spec}


def manifests() -> list[dict[str, Any]]:
    """KEDA without its webhooks, with the rights of an administrator."""
    rights = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "keda-operator", "namespace": "keda"}
    role = {"apiGroup": rights, "kind": "ClusterRole", "name": "cluster-admin"}
    operator = ["--enable-cert-rotation=true", "--enable-webhook-patching=false"]
    adapter = ["--secure-port=6443", "--client-ca-file=/certs/ca.crt", "--tls-cert-file=/certs/tls.crt"]
    adapter += ["--tls-private-key-file=/certs/tls.key", "--cert-dir=/certs"]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keda"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named("keda-operator")},
        {
            "apiVersion": f"{rights}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "keda-operator-admin"},
            "roleRef": role,
            "subjects": [account],
        },
        _program("keda-operator", "keda-operator", operator),
        _service("keda-operator", 9666, 9666),
        _program("keda-metrics-apiserver", "keda-adapter", adapter),
        _service("keda-metrics-apiserver", 443, 6443),
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": "keda-metrics-apiserver", "namespace": "keda", "port": 443},
            },
        },
    ]


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A namespace with a release and two agents, in a cluster with KEDA."""
    definitions = cluster.programs / "keda" / "definitions"
    cluster.kubectl("apply", "--server-side", "-f", str(definitions))
    cluster.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()}))
    for name in ("keda-operator", "keda-metrics-apiserver"):
        cluster.kubectl("-n", "keda", "rollout", "status", f"deployment/{name}", f"--timeout={patience(120):.0f}s")
    wait = ("wait", "--for=condition=Available", "apiservice/v1beta1.external.metrics.k8s.io")
    cluster.kubectl(*wait, f"--timeout={patience(120):.0f}s")
    one = Place(cluster, "scaled", tmp_path_factory.mktemp("scaled"))
    set_scale(one, {"agent/many": {"replicas": MANY}}, keda=False)
    print(f"installed in {one.install():.1f} s")
    for name in ("many", "zero"):
        one.apply({"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": name}, "spec": SPEC})
    one.ready("agent/many", "agent/zero")
    yield one
    # First: no namespace is deleted while an API of the cluster does not answer.
    cluster.kubectl("delete", "apiservice", "v1beta1.external.metrics.k8s.io")
    cluster.kubectl("delete", "namespace", one.name, f"--timeout={patience(120):.0f}s", timeout=600)
    cluster.kubectl("delete", "namespace", "keda", f"--timeout={patience(120):.0f}s", timeout=600)
    cluster.kubectl("delete", "-f", str(definitions), timeout=600)


def set_scale(place: Place, workloads: dict[str, Any], *, keda: bool) -> None:
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cadre-values"}}
    place.apply({**about, "data": {"kubernetes.yaml": yaml.safe_dump({"keda": keda, "workloads": workloads})}})


def count(place: Place, agent: str) -> int:
    """Return the number of pods that an agent's Deployment is to have."""
    return int(place.find("deployment", f"agent-{agent}")["spec"]["replicas"])


@pytest.mark.timeout(900)
def test_keda_takes_a_number_of_pods_over_and_wakes_what_is_at_zero(place: Place) -> None:
    assert count(place, "many") == MANY
    many, zero = ({"scale": {"min": least, "max": MANY}} for least in (1, 0))
    set_scale(place, {"agent/many": {"replicas": MANY, **many}, "agent/zero": zero}, keda=True)
    begun, least = time.monotonic(), MANY

    def is_owned() -> bool:
        nonlocal least
        least = min(least, count(place, "many"))
        found = place.find("horizontalpodautoscalers")["items"]
        return any(one["spec"]["scaleTargetRef"]["name"] == "agent-many" for one in found)

    eventually(is_owned, what="an autoscaler counts the pods", state=lambda: least)
    assert least == MANY, "the number stays until its next owner has it"
    eventually(lambda: count(place, "zero") == 0, what="KEDA takes the other agent to zero", within=480)
    print(f"an agent without work was at zero after {time.monotonic() - begun:.1f} s")
    begun = time.monotonic()
    place.succeed(place.begin("zero", 3))
    print(f"runs of an agent at zero were whole after {time.monotonic() - begun:.1f} s")
    assert count(place, "zero") >= 1


def test_without_keda_the_number_is_that_of_the_values(place: Place) -> None:
    set_scale(place, {"agent/many": {"replicas": 2}}, keda=False)
    eventually(lambda: not place.find("scaledobjects")["items"], what="KEDA counts no pods")
    eventually(lambda: count(place, "many") == 2, what="there are two")
    place.succeed(place.begin("many"))
