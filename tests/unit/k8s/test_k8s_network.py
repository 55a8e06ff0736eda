"""Tests of who may reach whom in the shipped manifests, by the rules of NetworkPolicies."""

from functools import cache
from typing import Any

import pytest
import yaml

from cadre.deploy.k8s.manifest import Manifest
from cadre.errors import SpecError
from unit.k8s.reach import End, may_connect
from unit.k8s.shipped import ROOT, pick, rendered

NATS = End({"app.kubernetes.io/name": "nats"}, "cadre", "10.244.0.10")
QDRANT = End({"app.kubernetes.io/name": "qdrant"}, "cadre", "10.244.0.11")
DNS = End({"k8s-app": "kube-dns"}, "kube-system", "10.96.0.10")
INTERNET = End(None, address="93.184.215.14")
MACHINE = End(None, address="169.254.169.254")
KEDA = End({"app": "keda-operator"}, "keda", "10.244.0.12")
STRANGER = End({"app": "x"}, "elsewhere", "10.244.0.13")


def end(manifests: list[Manifest], deployment: str) -> End:
    template = pick(manifests, f"Deployment/{deployment}")["spec"]["template"]
    return End(template["metadata"]["labels"], "cadre", "10.244.0.20")


@cache
def shipped() -> list[Manifest]:
    dev = [
        manifest
        for name in ("nats.yaml", "qdrant.yaml")
        for manifest in yaml.safe_load_all((ROOT / "deploy/k8s/dev" / name).read_text())
    ]
    return [*rendered(), *dev]


ALLOWED = [
    ("sandbox-default", NATS, 4222),
    ("agent-manager", NATS, 4222),
    ("agent-manager", INTERNET, 443),
    ("agent-manager", DNS, 53),
    ("tools-tables", NATS, 4222),
    ("gateway", NATS, 4222),
    ("memory", NATS, 4222),
    ("memory", QDRANT, 6333),
]
FORBIDDEN = [
    ("sandbox-default", INTERNET, 443),
    ("sandbox-default", QDRANT, 6333),
    ("sandbox-default", MACHINE, 80),
    ("sandbox-default", NATS, 8222),
    ("agent-manager", MACHINE, 80),
    ("agent-manager", MACHINE, 443),
    ("agent-manager", QDRANT, 6333),
    ("agent-manager", INTERNET, 25),
    ("tools-tables", INTERNET, 443),
    ("tools-tables", QDRANT, 6333),
    ("gateway", QDRANT, 6333),
    ("gateway", INTERNET, 443),
    ("memory", INTERNET, 443),
]


@pytest.mark.parametrize(("source", "target", "port"), ALLOWED)
def test_a_service_reaches_what_it_needs(source: str, target: End, port: int) -> None:
    assert may_connect(shipped(), end(shipped(), source), target, port)


@pytest.mark.parametrize(("source", "target", "port"), FORBIDDEN)
def test_a_service_reaches_nothing_else(source: str, target: End, port: int) -> None:
    assert not may_connect(shipped(), end(shipped(), source), target, port)


def test_gateways_that_share_their_index_reach_the_database() -> None:
    database = End({"app.kubernetes.io/name": "postgresql"}, "stores", "10.244.0.14")
    here = rendered({"index": {"secret": "cadre-index", "namespace": "stores"}})
    assert may_connect(here, end(here, "gateway"), database, 5432)
    assert not may_connect(here, end(here, "agent-manager"), database, 5432)
    outside = rendered({"index": {"secret": "cadre-index", "url": "postgresql://db.example:6432", "pods": {}}})
    assert may_connect(outside, end(outside, "gateway"), INTERNET, 6432)
    assert not may_connect(shipped(), end(shipped(), "gateway"), database, 5432)


def test_who_may_come_in() -> None:
    manifests = shipped()
    assert may_connect(manifests, STRANGER, end(manifests, "gateway"), 8080)
    assert not may_connect(manifests, STRANGER, end(manifests, "agent-manager"), 8080)
    assert not may_connect(manifests, end(manifests, "sandbox-default"), end(manifests, "agent-manager"), 8080)
    assert may_connect(manifests, KEDA, NATS, 8222)
    assert not may_connect(manifests, STRANGER, NATS, 8222)
    assert not may_connect(manifests, STRANGER, NATS, 4222)
    assert not may_connect(manifests, STRANGER, QDRANT, 6333)


def test_a_wall_that_is_taken_down_shows() -> None:
    manifests = [m for m in shipped() if (m["kind"], m["metadata"]["name"]) != ("NetworkPolicy", "sandbox-default")]
    assert may_connect(manifests, end(manifests, "sandbox-default"), INTERNET, 443)


def test_a_bus_given_by_its_address_needs_no_name_server() -> None:
    manifests = rendered({"nats": {"url": "nats://10.96.7.7:4222"}})
    assert not may_connect(manifests, end(manifests, "sandbox-default"), DNS, 53)
    assert may_connect(manifests, end(manifests, "sandbox-default"), NATS, 4222)


def test_the_model_endpoints_port_is_open_to_agents_alone() -> None:
    manifests = rendered({"model": {"url": "http://models.example:8000/v1"}})
    assert may_connect(manifests, end(manifests, "agent-manager"), INTERNET, 8000)
    assert not may_connect(manifests, end(manifests, "sandbox-default"), INTERNET, 8000)


def test_a_tool_service_may_be_let_out() -> None:
    manifests = rendered({"workloads": {"tools/tables": {"internet": True}}})
    assert may_connect(manifests, end(manifests, "tools-tables"), INTERNET, 443)
    assert not may_connect(manifests, end(manifests, "tools-documents"), INTERNET, 443)


def test_a_collector_and_a_scraper_are_let_through() -> None:
    manifests = rendered({"telemetry": {"url": "http://otel:4318", "scraper": "monitoring"}})
    collector = End({"app.kubernetes.io/name": "opentelemetry-collector"}, "cadre", "10.244.0.30")
    assert may_connect(manifests, end(manifests, "agent-manager"), collector, 4318)
    assert may_connect(manifests, end(manifests, "tracer"), collector, 4318)
    assert not may_connect(manifests, end(manifests, "sandbox-default"), collector, 4318)
    prometheus = End({"app": "prometheus"}, "monitoring", "10.244.0.31")
    assert may_connect(manifests, prometheus, end(manifests, "agent-manager"), 8080)
    assert not may_connect(manifests, STRANGER, end(manifests, "agent-manager"), 8080)


def test_a_bus_in_another_namespace() -> None:
    manifests = rendered({"nats": {"url": "nats://nats.bus:4222", "namespace": "bus"}})
    agent = end(manifests, "agent-manager")
    assert may_connect(manifests, agent, NATS._replace(namespace="bus"), 4222)
    assert not may_connect(manifests, agent, NATS, 4222)


@pytest.mark.parametrize(
    ("rule", "port", "allowed"),
    [
        ({}, 7, True),
        ({"ports": [{"port": 5, "endPort": 9}]}, 7, True),
        ({"ports": [{"port": 5, "endPort": 6}]}, 7, False),
        ({"ports": [{"port": 7, "protocol": "UDP"}]}, 7, False),
        ({"ports": [{"port": "http"}]}, 7, True),
        ({"to": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}, 7, True),
        (
            {"to": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}}]},
            7,
            False,
        ),
        ({"to": [{"namespaceSelector": {}}]}, 7, True),
        ({"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}, 7, False),
        ({"to": [{"ipBlock": {"cidr": "10.1.2.0/24"}}]}, 7, True),
    ],
)
def test_the_rules_of_a_policy(rule: dict[str, Any], port: int, allowed: bool) -> None:
    policy = {
        "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]},
    }
    target = End({"a": "b"}, "n", "10.1.2.3")
    assert may_connect([policy], End({}, "n"), target, port) is allowed


NAME_SERVER = {
    "toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s:k8s-app": "kube-dns"}}],
    "toPorts": [{"ports": [{"port": "53", "protocol": "ANY"}], "rules": {"dns": [{"matchPattern": "*"}]}}],
}


def test_with_cilium_only_named_hosts_are_reached() -> None:
    manifests = rendered(
        {
            "cilium": True,
            "model": {"url": "https://models.example/v1"},
            "workloads": {
                "agent/manager": {"hosts": ["*.tracker.example", "wiki.example:8443"]},
                "tools/tables": {"internet": True, "hosts": ["data.example"]},
                "memory": {
                    "internet": True,
                    "env": {"CADRE_MEMORY_EMBEDDINGS_URL": "http://192.0.2.7:8000/v1"},
                },
            },
        }
    )

    def egress(name: str) -> list[dict[str, Any]]:
        spec = pick(manifests, f"CiliumNetworkPolicy/{name}")["spec"]
        assert spec["endpointSelector"]["matchLabels"]["app.kubernetes.io/name"] == name
        found: list[dict[str, Any]] = spec["egress"]
        return found

    def ports(number: int) -> list[dict[str, Any]]:
        return [{"ports": [{"port": str(number), "protocol": "TCP"}]}]

    assert egress("agent-manager") == [
        NAME_SERVER,
        {
            "toFQDNs": [{"matchPattern": "*.tracker.example"}, {"matchName": "models.example"}],
            "toPorts": ports(443),
        },
        {"toFQDNs": [{"matchName": "wiki.example"}], "toPorts": ports(8443)},
    ]
    assert egress("tools-tables") == [
        NAME_SERVER,
        {"toFQDNs": [{"matchName": "data.example"}], "toPorts": ports(443)},
    ]
    assert egress("memory") == [NAME_SERVER, {"toCIDR": ["192.0.2.7/32"], "toPorts": ports(8000)}]
    # Policies add up: the plain ones say nothing of the outside then.
    assert not may_connect(manifests, end(manifests, "agent-manager"), INTERNET, 443)
    assert may_connect(manifests, end(manifests, "agent-manager"), NATS, 4222)
    with pytest.raises(LookupError):
        pick(manifests, "CiliumNetworkPolicy/sandbox-default")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workloads": {"agent/manager": {"hosts": ["a.example"]}}}, "set cilium: true"),
        (
            {"cilium": True, "workloads": {"tools/tables": {"internet": True}}},
            "tools/tables: hosts: .*internet: false",
        ),
    ],
)
def test_hosts_that_nothing_would_hold_to_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        rendered(values)


def test_the_port_of_an_endpoint_in_a_variable_is_open() -> None:
    env = {"CADRE_MEMORY_EMBEDDINGS_URL": "http://embeddings.example:8000/v1"}
    manifests = rendered({"workloads": {"memory": {"internet": True, "env": env}}})
    assert may_connect(manifests, end(manifests, "memory"), INTERNET, 8000)


@pytest.mark.parametrize("is_inside", [True, False])
def test_each_server_of_a_nats_cluster_is_reached(is_inside: bool) -> None:
    urls = "nats://nats-a.example:4222, tls://nats-b.example:4223"
    manifests = rendered({"nats": {"url": urls} | ({} if is_inside else {"pods": {}})})
    sandbox = end(manifests, "sandbox-default")
    server = NATS if is_inside else INTERNET
    assert [may_connect(manifests, sandbox, server, port) for port in (4222, 4223, 4224)] == [
        True,
        True,
        False,
    ]
    assert may_connect(manifests, sandbox, DNS, 53)
    by_address = rendered({"nats": {"url": "nats://192.0.2.1:4222,nats://192.0.2.2:4222"}})
    assert not may_connect(by_address, end(by_address, "sandbox-default"), DNS, 53)
