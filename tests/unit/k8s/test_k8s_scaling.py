"""Tests of who gets replicas by what waits for it, and what stays of an agent that has none."""

import json
from itertools import pairwise

from unit.k8s.shipped import pick, rendered


def test_replicas_follow_the_lag_of_each_durable_on_each_shard() -> None:
    manifests = rendered(
        {"nats": {"shards": 3}, "workloads": {"agent/manager": {"scale": {"min": 0, "max": 5, "lag": 30}}}}
    )
    spec = pick(manifests, "ScaledObject/agent-manager")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 5)
    assert spec["fallback"] == {
        "failureThreshold": 3,
        "replicas": 1,
        "behavior": "currentReplicasIfHigher",
    }
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    asked = [
        (t["metadata"]["stream"], t["metadata"]["consumer"], t["metadata"]["lagThreshold"]) for t in spec["triggers"]
    ]
    assert asked == [(f"CADRE-{shard}", "agent-manager", "10") for shard in range(3)]
    assert all(isinstance(v, str) for t in spec["triggers"] for v in t["metadata"].values())
    tables = pick(manifests, "ScaledObject/tools-tables")["spec"]["triggers"]
    assert {t["metadata"]["consumer"] for t in tables} > {"tool-list_tables", "tool-aggregate"}
    assert {t["metadata"]["consumer"] for t in pick(manifests, "ScaledObject/sandbox-default")["spec"]["triggers"]} == {
        "code-default"
    }
    assert "replicas" not in pick(manifests, "Deployment/agent-manager")["spec"]


def test_an_agent_that_may_have_no_replica_keeps_a_card_at_rest() -> None:
    manifests = rendered({"workloads": {"agent/manager": {"scale": {"min": 0}}}})
    [job] = [m for m in manifests if m["kind"] == "Job"]
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    [spec] = [json.loads(spec) for option, spec in pairwise(arguments) if option == "--at-rest"]
    assert (spec["name"], spec["team"]) == ("manager", ["researcher", "analyst", "statistician"])
    assert job != next(m for m in rendered({}) if m["kind"] == "Job"), "a Job cannot be changed: it is another"
    for without in ({}, {"keda": False, "workloads": {"agent/manager": {"scale": {"min": 0}}}}):
        assert "--at-rest" not in str(rendered(without))


def test_without_keda_there_are_as_many_as_are_asked_for() -> None:
    manifests = rendered({"keda": False, "workloads": {"agent/*": {"replicas": 2}, "agent/checker": {"replicas": 3}}})
    assert not [m for m in manifests if m["kind"] == "ScaledObject"]
    assert pick(manifests, "Deployment/agent-manager")["spec"]["replicas"] == 2
    assert pick(manifests, "Deployment/agent-checker")["spec"]["replicas"] == 3
    assert pick(manifests, "Deployment/tools-tables")["spec"]["replicas"] == 1
    theirs = rendered({"keda": False, "workloads": {"agent/*": {"replicas": None}}})
    assert "replicas" not in pick(theirs, "Deployment/agent-manager")["spec"]
