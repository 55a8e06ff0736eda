"""One service as manifests: Deployment, its files, its disruption budget, its scaling."""

from __future__ import annotations

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.config_maps import config_map, digest
from cadre.deploy.k8s.labels import INTERNET, labels, selector
from cadre.deploy.k8s.manifest import Manifest, manifest
from cadre.deploy.k8s.pod_spec import pod_spec
from cadre.deploy.k8s.scaled_object import scaled_object
from cadre.deploy.k8s.values import Scale, Values, Workload
from cadre.errors import SpecError


def workload_manifests(component: Component, values: Values) -> list[Manifest]:
    """Without what it shares with others. Raises SpecError."""
    workload = values.workload(component.key)
    scale = workload.scale if values.keda and component.consumers else None
    _check(component, workload, scale)
    metadata = {
        "name": component.id,
        "namespace": values.namespace,
        "labels": labels(component.id, component.role),
    }
    found = [_deployment(component, values, workload, scale)]
    if component.files is not None and component.files.name == component.id:
        found.append(config_map(component.files, metadata))
    found.append(
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            metadata,
            spec={
                # Of one replica, too, a drained node may take the one: it drains.
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selector(component.id)},
            },
        )
    )
    if scale is not None:
        found.append(scaled_object(component, values, scale))
    if component.role == "gateway":
        port = {"name": "http", "port": 80, "targetPort": "http"}
        found.append(
            manifest("v1", "Service", metadata, spec={"selector": selector(component.id), "ports": [port]})
        )
    return found


def _check(component: Component, workload: Workload, scale: Scale | None) -> None:
    if workload.drain < 0 or workload.linger < 0 or workload.replicas < 0:
        raise SpecError(f"workloads: {component.key}: drain, linger and replicas must be at least 0")
    if scale is not None and not (0 <= scale.min <= scale.max and scale.max >= 1 and scale.lag >= 1):
        raise SpecError(f"workloads: {component.key}: scale: 0 <= min <= max, with max and lag at least 1")


def _deployment(component: Component, values: Values, workload: Workload, scale: Scale | None) -> Manifest:
    marks = labels(component.id, component.role)
    template: Manifest = {
        "metadata": {"labels": marks | ({INTERNET: "true"} if workload.internet else {})},
        "spec": pod_spec(component, values, workload),
    }
    if component.files is not None:
        # A change of its files rolls this service, and no other.
        template["metadata"]["annotations"] = {"cadre.dev/spec-hash": digest(component.files)}
    spec: Manifest = {
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(component.id)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": template,
    }
    if scale is None:
        # Where something scales it, every `apply` would set the number back.
        spec = {"replicas": workload.replicas, **spec}
    metadata = {"name": component.id, "namespace": values.namespace, "labels": marks}
    return manifest("apps/v1", "Deployment", metadata, spec=spec)
