"""One service as manifests: Deployment, its files, its disruption budget, its scaling."""

from __future__ import annotations

from cadre.deploy.k8s.components import Piece
from cadre.deploy.k8s.config_maps import config_map, digest
from cadre.deploy.k8s.labels import INTERNET, labels, selector
from cadre.deploy.k8s.manifest import Manifest, manifest
from cadre.deploy.k8s.pod_spec import pod_spec
from cadre.deploy.k8s.scaled_object import scaled_object
from cadre.deploy.k8s.values import Scale, Values, Workload
from cadre.errors import SpecError


def workload_manifests(piece: Piece, values: Values) -> list[Manifest]:
    """Without what it shares with others. Raises SpecError."""
    workload = values.workload(piece.key)
    scale = workload.scale if values.keda and piece.consumers else None
    _check(piece, workload, scale)
    metadata = {"name": piece.id, "namespace": values.namespace, "labels": labels(piece.id, piece.role)}
    found = [_deployment(piece, values, workload, scale)]
    if piece.files is not None and piece.files.name == piece.id:
        found.append(config_map(piece.files, metadata))
    found.append(
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            metadata,
            spec={
                # Of one replica, too, a drained node may take the one: it drains.
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selector(piece.id)},
            },
        )
    )
    if scale is not None:
        found.append(scaled_object(piece, values, scale))
    if piece.role == "gateway":
        port = {"name": "http", "port": 80, "targetPort": "http"}
        found.append(
            manifest("v1", "Service", metadata, spec={"selector": selector(piece.id), "ports": [port]})
        )
    return found


def _check(piece: Piece, workload: Workload, scale: Scale | None) -> None:
    if workload.drain < 0 or workload.linger < 0 or workload.replicas < 0:
        raise SpecError(f"workloads: {piece.key}: drain, linger and replicas must be at least 0")
    if scale is not None and not (0 <= scale.min <= scale.max and scale.max >= 1 and scale.lag >= 1):
        raise SpecError(f"workloads: {piece.key}: scale: 0 <= min <= max, with max and lag at least 1")


def _deployment(piece: Piece, values: Values, workload: Workload, scale: Scale | None) -> Manifest:
    marks = labels(piece.id, piece.role)
    template: Manifest = {
        "metadata": {"labels": marks | ({INTERNET: "true"} if workload.internet else {})},
        "spec": pod_spec(piece, values, workload),
    }
    if piece.files is not None:
        # A change of its files rolls this service, and no other.
        template["metadata"]["annotations"] = {"cadre.dev/spec-hash": digest(piece.files)}
    spec: Manifest = {
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(piece.id)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": template,
    }
    if scale is None:
        # Where something scales it, every `apply` would set the number back.
        spec = {"replicas": workload.replicas, **spec}
    metadata = {"name": piece.id, "namespace": values.namespace, "labels": marks}
    return manifest("apps/v1", "Deployment", metadata, spec=spec)
