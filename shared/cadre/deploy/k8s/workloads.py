"""One service as manifests, everything that it needs included; and the Job before them all."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.config_maps import config_map, digest
from cadre.deploy.k8s.manifest import AGENT, Manifest, manifest, metadata, selector
from cadre.deploy.k8s.named_hosts import cilium_policy
from cadre.deploy.k8s.network_policies import network_policy
from cadre.deploy.k8s.overlay import merged
from cadre.deploy.k8s.pod_spec import plain_pod_spec, pod_spec
from cadre.deploy.k8s.scaled_object import scaled_object
from cadre.deploy.k8s.values import Scale, Values, Workload
from cadre.errors import SpecError

_LABEL_VALUE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?")


def workload_manifests(component: Component, values: Values) -> list[Manifest]:
    """The manifests of a service: its Deployment first, then what that needs. Raises SpecError."""
    workload = values.workload(component.key)
    scale = _scale(component, values)
    _check(component, values, workload, scale)
    _check_model(component, values, workload)
    about = metadata(values.namespace, component.id, component.role)
    found = [_deployment(component, values, workload, scale), *_guards(component, values)]
    if component.files is not None and component.files.name == component.id:
        found.append(config_map(component.files, about))
    budget = {
        # Of one replica, too, a drained node may take the one: it drains.
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(component.id)},
    }
    found.append(manifest("policy/v1", "PodDisruptionBudget", about, spec=budget))
    found += scaling(component, values)
    if component.role == "gateway":
        port = {"name": "http", "port": 80, "targetPort": "http"}
        found.append(
            manifest("v1", "Service", about, spec={"selector": selector(component.id), "ports": [port]})
        )
    return found


def scaling(component: Component, values: Values) -> list[Manifest]:
    """What scales a service; nothing where its replicas are counted by hand."""
    scale = _scale(component, values)
    return [scaled_object(component, values, scale)] if scale is not None else []


def provision(components: Sequence[Component], values: Values) -> list[Manifest]:
    """The Job that creates streams and consumers before KEDA asks for their lag, and what it needs.

    A Job cannot be changed, so its name is derived from its arguments and image.
    """
    options = [option for component in components for option in component.provides]
    for one in components:
        if one.at_rest and (scale := _scale(one, values)) is not None and scale.min == 0:
            options += ["--at-rest", one.at_rest]
    bus = values.nats
    whole = "\0".join([values.image, bus.url, str(bus.shards), bus.credentials, *options])
    component = Component("provision", "", ["provision", *options], instance=values.instance or "cadre")
    workload = values.workload(component.key)
    about = metadata(values.namespace, component.id, component.role)
    pod = {"restartPolicy": "OnFailure", **plain_pod_spec(component, values, workload)}
    del pod["topologySpreadConstraints"]
    job = manifest(
        "batch/v1",
        "Job",
        {**about, "name": f"{component.id}-{sha256(whole.encode()).hexdigest()[:8]}"},
        spec={
            "backoffLimit": 10,
            # While it is kept, `apply` of what it was made for does not run it again: who goes back to a former
            # spec, whose card at rest another one has taken the place of, wants it run.
            "ttlSecondsAfterFinished": 300,
            "template": {"metadata": {"labels": about["labels"]}, "spec": merged(pod, workload.pod)},
        },
    )
    return [*_guards(component, values), job]


def _guards(component: Component, values: Values) -> list[Manifest]:
    """Who its pods are to the cluster, and whom they may talk to."""
    about = metadata(values.namespace, component.id, component.role)
    account = manifest("v1", "ServiceAccount", about, automountServiceAccountToken=False)
    policies = [network_policy(component, values)]
    if values.cilium and values.workload(component.key).internet:
        policies.append(cilium_policy(component, values))
    return [account, *policies]


def _scale(component: Component, values: Values) -> Scale | None:
    return values.workload(component.key).scale if values.keda and component.consumers else None


def _check(component: Component, values: Values, workload: Workload, scale: Scale | None) -> None:
    if workload.drain < 0 or workload.linger < 0 or workload.replicas < 0:
        raise SpecError(f"workloads: {component.key}: drain, linger and replicas must be at least 0")
    if scale is not None and not (0 <= scale.min <= scale.max and scale.max >= 1 and scale.lag >= 1):
        raise SpecError(f"workloads: {component.key}: scale: 0 <= min <= max, with max and lag at least 1")
    if scale is not None and scale.min == 0 and component.role == "tools":
        raise SpecError(
            f"workloads: {component.key}: scale: min must be at least 1: agents know a tool by those who serve it"
        )
    if workload.hosts and not (values.cilium and workload.internet):
        raise SpecError(
            f"workloads: {component.key}: hosts: a NetworkPolicy knows addresses alone; set cilium: true in a cluster"
            " that has it, and internet: true here"
        )


def _check_model(component: Component, values: Values, workload: Workload) -> None:
    said = {"CADRE_MODEL_URL": ("url", values.model.url), "CADRE_MODEL": ("name", values.model.name)}
    for variable in component.asks_for:
        key, value = said[variable]
        if not (value or variable in workload.env or variable in workload.secrets):
            raise SpecError(
                f"{component.key}: has no model.{key}: write it in its file, or for all agents in the values, as with"
                f" --set model.{key}=…"
            )


def _deployment(component: Component, values: Values, workload: Workload, scale: Scale | None) -> Manifest:
    about = metadata(values.namespace, component.id, component.role)
    # The name that its spans, metrics and log lines have: the object's own is spelt as Kubernetes wants.
    if component.role == "agent" and _LABEL_VALUE.fullmatch(component.name):
        about["labels"][AGENT] = component.name
    of_pods: dict[str, Any] = {"labels": about["labels"]}
    if component.files is not None:
        # A change of its files rolls this service, and no other.
        of_pods["annotations"] = {"cadre.dev/spec-hash": digest(component.files)}
    spec: Manifest = {
        # Where something scales it, every `apply` would set the number back.
        **({"replicas": workload.replicas} if scale is None else {}),
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(component.id)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": of_pods, "spec": pod_spec(component, values, workload)},
    }
    return manifest("apps/v1", "Deployment", about, spec=spec)
