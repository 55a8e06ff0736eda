"""Every fault that is planted in good manifests is found, and named by the object that has it."""

from collections.abc import Callable
from typing import Any

import pytest

from cadre.deploy.k8s.manifest import Manifest
from unit.k8s.faults import faults
from unit.k8s.shipped import GIVEN, main_of, pick, pod_of, rendered

AGENT = "Deployment/agent-manager"
SCALED = "ScaledObject/agent-manager"

Fault = Callable[[list[Manifest]], Any]


def in_pod(**fields: Any) -> Fault:
    return lambda all_: pod_of(all_, AGENT).update(fields)


def in_container(**fields: Any) -> Fault:
    return lambda all_: main_of(all_, AGENT).update(fields)


def in_security(**fields: Any) -> Fault:
    return lambda all_: main_of(all_, AGENT)["securityContext"].update(fields)


def in_spec(called: str, **fields: Any) -> Fault:
    return lambda all_: pick(all_, called)["spec"].update(fields)


def in_trigger(**fields: Any) -> Fault:
    return lambda all_: pick(all_, SCALED)["spec"]["triggers"][0]["metadata"].update(fields)


def asking_the_gateway(**fields: str) -> Fault:
    known = {
        "url": "http://gateway.cadre.svc/v1/agents/manager/lag",
        "valueLocation": "lag",
        "targetValue": "64",
    }
    return in_spec(SCALED, triggers=[{"type": "metrics-api", "metadata": {**known, **fields}}])


def without_trigger(key: str) -> Fault:
    return lambda all_: pick(all_, SCALED)["spec"]["triggers"][0]["metadata"].pop(key)


def remove(called: str) -> Fault:
    return lambda all_: all_.remove(pick(all_, called))


def add_to(field: str, item: Any) -> Fault:
    return lambda all_: main_of(all_, AGENT)[field].append(item)


def add_volume(**volume: Any) -> Fault:
    def plant(all_: list[Manifest]) -> None:
        pod_of(all_, AGENT)["volumes"].append({"name": "more", **volume})
        main_of(all_, AGENT)["volumeMounts"].append({"name": "more", "mountPath": "/more"})

    return plant


def relabel(called: str, **labels: str) -> Fault:
    return lambda all_: pick(all_, called)["spec"]["template"]["metadata"]["labels"].update(
        {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
    )


def in_policy(called: str, **fields: Any) -> Fault:
    return in_spec(f"NetworkPolicy/{called}", **fields)


def rename(called: str, name: str) -> Fault:
    return lambda all_: pick(all_, called)["metadata"].update(name=name)


def probe(**action: Any) -> Fault:
    return lambda all_: main_of(all_, AGENT)["readinessProbe"]["httpGet"].update(action)


def drop(called: str, field: str) -> Fault:
    return lambda all_: pick(all_, called)["spec"].pop(field)


FAULTS: list[tuple[Fault, str]] = [
    # names
    (rename("Deployment/gateway", "Gateway"), "Deployment/Gateway: a name"),
    (rename("Service/gateway", "gate.way"), "Service/gate.way: a name"),
    (relabel(AGENT, tier="a b"), "'a b' is no label's value"),
    (lambda all_: all_.append(dict(pick(all_, AGENT))), "is there 2 times"),
    (lambda all_: pick(all_, "ConfigMap/agent-manager")["data"].update({"a/b": ""}), "'a/b' is no key"),
    # references
    (remove("ServiceAccount/agent-manager"), "no ServiceAccount/agent-manager"),
    (remove("ConfigMap/agent-manager"), "no ConfigMap/agent-manager"),
    (
        lambda all_: pick(all_, "ConfigMap/agent-manager")["data"].pop("manager.yaml"),
        "has no key 'manager.yaml'",
    ),
    (add_volume(secret={"secretName": "gone"}), "no Secret/gone"),
    (add_volume(projected={"sources": [{"secret": {"name": "gone"}}]}), "no Secret/gone"),
    (
        add_volume(
            projected={"sources": [{"configMap": {"name": "agent-manager", "items": [{"key": "k", "path": "p"}]}}]}
        ),
        "agent-manager has no key 'k'",
    ),
    (
        lambda all_: next(v for v in pod_of(all_, AGENT)["volumes"] if v["name"] == "nats").update(
            secret={"secretName": "cadre-nat-agent-manager"}
        ),
        "no Secret/cadre-nat-agent-manager",
    ),
    (
        add_to("env", {"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}),
        "no Secret/gone",
    ),
    (in_container(envFrom=[{"configMapRef": {"name": "gone"}}]), "no ConfigMap/gone"),
    (in_spec("Service/gateway", selector={"app": "x"}), "Service/gateway: selects no pod"),
    (in_spec("Service/gateway", ports=[{"port": 80, "targetPort": "htpp"}]), "has the port 'htpp'"),
    (
        in_spec("PodDisruptionBudget/gateway", selector={"matchLabels": {"app": "x"}}),
        "PodDisruptionBudget/gateway: selects no pod",
    ),
    (in_spec("PodDisruptionBudget/gateway", maxUnavailable=0), "no node can be drained"),
    (in_spec("PodDisruptionBudget/gateway", minAvailable=1), "either minAvailable"),
    # pods
    (in_spec(AGENT, selector={"matchLabels": {"app.kubernetes.io/name": "x"}}), "does not match the labels"),
    (in_spec(AGENT, strategy={"type": "Roling"}), "strategy.type 'Roling'"),
    (
        in_spec(AGENT, strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
        "rollingUpdate goes with",
    ),
    (in_pod(restartPolicy="OnFailure"), "restartPolicy must be in ('Always',)"),
    (
        lambda all_: pod_of(all_, "Job/cadre-provision-*").update(restartPolicy="Always"),
        "restartPolicy must be in ('OnFailure', 'Never')",
    ),
    (add_to("volumeMounts", {"name": "gone", "mountPath": "/x"}), "mounts {'gone'}"),
    (
        lambda all_: pod_of(all_, AGENT)["volumes"].append({"name": "idle", "emptyDir": {}}),
        "{'idle'} is mounted nowhere",
    ),
    (
        lambda all_: pod_of(all_, AGENT)["volumes"].append({"name": "tmp", "emptyDir": {}}),
        "volumes are there twice: ['tmp']",
    ),
    (in_pod(terminationGracePeriodSeconds=60), "may drain for 120 s, but is killed after 60 s"),
    (lambda all_: pod_of(all_, AGENT).pop("terminationGracePeriodSeconds"), "killed after 30 s"),
    (
        lambda all_: pod_of(all_, AGENT)["topologySpreadConstraints"][0].update(
            labelSelector={"matchLabels": {"app": "x"}}
        ),
        "topologySpreadConstraints select other pods",
    ),
    (
        lambda all_: pod_of(all_, AGENT)["topologySpreadConstraints"][0].update(whenUnsatisfiable="Maybe"),
        "whenUnsatisfiable must be in",
    ),
    # containers
    (in_container(image="cadre :1"), "is no name of an image"),
    (in_container(imagePullPolicy="IfMissing"), "imagePullPolicy 'IfMissing'"),
    (probe(port="htpp"), "asks the port 'htpp'"),
    (probe(path="readyz"), "must begin with '/'"),
    (lambda all_: main_of(all_, AGENT).pop("readinessProbe"), "has no readinessProbe"),
    (add_to("ports", {"name": "a-very-long-port-name", "containerPort": 9}), "is no name of a port"),
    (add_to("ports", {"name": "again", "containerPort": 8080}), "ports are there twice: [8080]"),
    (
        add_to("env", {"name": "CADRE_NATS_URL", "value": "x"}),
        "variables are there twice: ['CADRE_NATS_URL']",
    ),
    (
        add_to("env", {"name": "X", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        "has a value and a source",
    ),
    (add_to("volumeMounts", {"name": "tmp", "mountPath": "/tmp"}), "mounts are there twice: ['/tmp']"),
    (in_container(resources={"limits": {"memory": "512MB"}}), "'512MB' is no quantity"),
    (in_container(resources={"requests": {"cpu": "1"}}), "has no memory limit"),
    (
        in_container(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "512Mi"}}),
        "requests more memory",
    ),
    (add_volume(emptyDir={"medium": "Memory"}), "has no sizeLimit"),
    (
        lambda all_: pod_of(all_, AGENT)["containers"].append(main_of(all_, AGENT)),
        "containers are there twice: ['main']",
    ),
    # walls
    (in_pod(hostNetwork=True), "hostNetwork is not `restricted`"),
    (add_volume(hostPath={"path": "/"}), "kind {'hostPath'} is not `restricted`"),
    (add_to("ports", {"name": "x", "containerPort": 1, "hostPort": 1}), "port of its node"),
    (in_security(privileged=True), "is privileged"),
    (in_security(allowPrivilegeEscalation=True), "allowPrivilegeEscalation is not false"),
    (in_security(capabilities={}), "does not drop ALL"),
    (in_security(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}), "or adds one"),
    (in_security(runAsNonRoot=False), "may run as root"),
    (in_security(runAsUser=0), "may run as root"),
    (in_security(seccompProfile={"type": "Unconfined"}), "seccompProfile.type"),
    (in_security(readOnlyRootFilesystem=False), "readOnlyRootFilesystem is not true"),
    (in_pod(automountServiceAccountToken=True), "token of the Kubernetes API"),
    (
        lambda all_: main_of(all_, "Deployment/sandbox-default").update(
            envFrom=[{"secretRef": {"name": "cadre-model"}}]
        ),
        "a sandbox is given secrets",
    ),
    # scaling
    (in_spec(AGENT, replicas=2), "would undo the scaling"),
    (in_spec(SCALED, scaleTargetRef={"name": "gone"}), "no Deployment/gone to scale"),
    (in_spec("ScaledObject/agent-checker", scaleTargetRef={"name": "agent-manager"}), "2 ScaledObjects"),
    (in_trigger(lagTreshold="5"), "should not have, 'lagTreshold'"),
    (in_trigger(lagThreshold=5), "must be text, in quotes"),
    (in_trigger(lagThreshold="five"), "must be a whole number"),
    (without_trigger("stream"), "should not have, 'stream'"),
    (in_trigger(natsServerMonitoringEndpoint="http://nats:8222"), "must be HOST:PORT without a scheme"),
    (in_trigger(consumer="agent-maneger"), "no Job makes the consumer 'agent-maneger'"),
    (asking_the_gateway(url="http://gatewey.cadre.svc/v1/agents/manager/lag"), "no Service gatewey to ask"),
    (asking_the_gateway(targetValue="many"), "'many' must be a number"),
    (asking_the_gateway(value="lag"), "should not have, 'value'"),
    (in_spec(SCALED, minReplicaCount=20), "do not fit"),
    (drop(SCALED, "fallback"), "has no fallback"),
    (in_spec(SCALED, triggers=[]), "has no trigger"),
    # network
    (
        in_policy("gateway", podSelector={"matchLabels": {"app": "x"}}),
        "NetworkPolicy/gateway: selects no pod",
    ),
    (remove("NetworkPolicy/agent-manager"), "no NetworkPolicy holds for its Ingress"),
    (in_policy("gateway", policyTypes=["Ingress"]), "egress counts for nothing"),
    (in_policy("gateway", policyTypes=["Egres"]), "must be Ingress or Egress"),
    (
        in_policy(
            "agent-manager",
            egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0"}}, {"ipBlock": {"cidr": "10.0.0.1/8"}}]}],
        ),
        "is no network",
    ),
    (
        in_policy(
            "agent-manager",
            egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]}}]}],
        ),
        "is no network",
    ),
    (relabel(AGENT, **{"part-of": "cadr"}), "does not match the labels"),
]


@pytest.mark.parametrize(("plant", "reads"), FAULTS)
def test_a_planted_fault_is_found(plant: Fault, reads: str) -> None:
    manifests = rendered()
    plant(manifests)
    found = faults(manifests, GIVEN)
    assert any(reads in one for one in found), found


def test_without_a_fault_nothing_is_found() -> None:
    assert faults(rendered(), GIVEN) == []


def test_what_is_given_need_not_be_there() -> None:
    without_users = rendered({"nats": {"credentials": ""}})
    assert {one.partition(": ")[2] for one in faults(without_users)} == {
        "there is no Secret/cadre-gateway",
        "there is no Secret/cadre-model",
    }
    found = faults(rendered(), ["Secret/cadre-m*", "Secret/cadre-nats-a*"])
    missing = {one.rpartition("/")[2] for one in found}
    assert {"cadre-nats-gateway", "cadre-nats-provision"} <= missing
    assert "cadre-nats-agent-manager" not in missing
