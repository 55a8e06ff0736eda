"""Tests of what stands in the values: what null takes away, and what cannot work, which is reported with its key."""

import re
from typing import Any

import pytest

from cadre.errors import SpecError
from unit.k8s.shipped import env_of, pick, pod_of, rendered


def test_null_takes_away_what_a_default_says() -> None:
    layers = (
        {"workloads": {"agent/*": {"scale": None}}},
        {"workloads": {"agent/checker": {"scale": {"max": 3}}}},
    )
    manifests = rendered(*layers)
    scaled = {m["metadata"]["name"] for m in manifests if m["kind"] == "ScaledObject"}
    assert "agent-manager" not in scaled
    assert {"agent-checker", "sandbox-default"} <= scaled
    assert pick(manifests, "Deployment/agent-manager")["spec"]["replicas"] == 1
    pod = {"topologySpreadConstraints": None, "containers": [{"name": "main", "resources": None}]}
    whole = pod_of(rendered({"workloads": {"gateway": {"drain": None, "pod": pod}}}), "Deployment/gateway")
    assert "topologySpreadConstraints" not in whole
    assert "resources" not in whole["containers"][0]
    assert whole["terminationGracePeriodSeconds"] == 50


def test_a_gateway_below_a_path_is_probed_where_it_listens() -> None:
    manifests = rendered({"gateway": {"path": "/agents"}})
    assert env_of(manifests, "Deployment/gateway")["CADRE_GATEWAY_PATH"] == "/agents"
    (main,) = pod_of(manifests, "Deployment/gateway")["containers"]
    assert main["readinessProbe"]["httpGet"]["path"] == "/readyz/self"


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ({"namespace": "My_Team"}, "namespace: 'My_Team'"),
        ({"namespace": ""}, "namespace: ''"),
        ({"telemetry": {"scraper": "a b"}}, "telemetry.scraper: 'a b'"),
        ({"instance": "a" * 53}, "at most 52"),
        ({"image": ""}, "image: '': name an image"),
        ({"gateway": {"secret": ""}}, "gateway.secret: name the Secret"),
        ({"gateway": {"path": "agents"}}, "gateway.path: 'agents'"),
        ({"gateway": {"path": "/v1/x"}}, "gateway.path: '/v1/x'"),
        ({"memory": {"storage": {"size": "much"}}}, "memory.storage.size: 'much'"),
        ({"memory": {"engine": "chroma"}}, "memory.engine"),
        (
            {"memory": {"engine": "embedded"}, "workloads": {"memory": {"replicas": 2}}},
            "workloads: memory: replicas",
        ),
        ({"files": "team"}, "files: 'team'"),
        ({"pools": ["a b"]}, "pools: the name 'a b'"),
        ({"prices": {"m": {"input": -1, "output": 1}}}, "prices: m: "),
        ({"nats": {"prefix": "a.b"}}, "nats.prefix: the name 'a.b'"),
        ({"nats": {"credentials": "x-{user}"}}, "only {role} and {workload}"),
        ({"nats": {"credentials": "x-{"}}, "only {role} and {workload}"),
        ({"nats": {"tls": {"client": True}}}, "in nats.tls.secret"),
        ({"nats": {"monitor": "nats"}}, "nats.monitor: 'nats': write HOST:PORT"),
        ({"nats": {"url": "http://nats"}}, "must begin with nats:// or tls://"),
        ({"nats": {"url": "nats://nats:many"}}, "nats.url: 'nats://nats:many' is no URL"),
        ({"nats": {"url": "nats://a:4222,http://b"}}, "nats.url: 'http://b': must begin with"),
        ({"nats": {"url": "nats://a:4222,"}}, "nats.url: '' is no URL"),
        ({"model": {"url": "https://models:99999/v1"}}, "model.url: 'https://models:99999/v1' is no URL"),
        ({"model": {"url": "models"}}, "model.url: 'models' is no URL"),
        ({"telemetry": {"url": "otel:4317"}}, "telemetry.url"),
        ({"workloads": {"agnt/*": {}}}, "'agnt/*' matches no service"),
        (
            {"workloads": {"agent/*": {"drian": 3}}},
            "workloads: agent/*: Object contains unknown field `drian`",
        ),
        ({"workloads": {"agent/*": {"hosts": ["https://x/y"]}}}, "hosts: 'https://x/y'"),
        ({"workloads": {"*": {"env": {"X": "http://h:bad"}}}}, "'http://h:bad' is no URL"),
    ],
)
def test_a_value_that_cannot_work_is_told_with_its_key(layer: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=re.escape(told)):
        rendered(layer)


def test_an_embedded_index_is_one_pods_on_a_volume() -> None:
    layer = {"memory": {"engine": "embedded", "storage": {"size": "3Gi", "className": "fast"}}}
    manifests = rendered(layer)
    claim = pick(manifests, "PersistentVolumeClaim/memory")["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "3Gi")
    spec = pick(manifests, "Deployment/memory")["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    pod, environment = pod_of(manifests, "Deployment/memory"), env_of(manifests, "Deployment/memory")
    assert "QDRANT_URL" not in environment
    [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "memories"]
    assert mount["mountPath"] == environment["CADRE_MEMORY_DIRECTORY"]
    policy = pick(manifests, "NetworkPolicy/memory")["spec"]
    assert 6333 not in [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    plain = rendered()
    assert not [one for one in plain if one["kind"] == "PersistentVolumeClaim"]
    assert pick(plain, "Deployment/memory")["spec"]["strategy"]["type"] == "RollingUpdate"
    gateway = pick(manifests, "Deployment/gateway")["spec"]["strategy"]
    assert gateway["type"] == "RollingUpdate"


def test_the_short_form_of_memory_and_the_long_one_lie_over_each_other() -> None:
    for enabled, there in ((True, True), (False, False)):
        found = rendered({"memory": {"engine": "embedded"}}, {"memory": enabled})
        assert any(one["metadata"]["name"] == "memory" for one in found) is there
        assert any(one["kind"] == "PersistentVolumeClaim" for one in found) is there
