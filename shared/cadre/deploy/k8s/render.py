"""A team's pieces as manifests, by the file that each belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from cadre.deploy.k8s.components import Piece, names
from cadre.deploy.k8s.config_maps import config_map
from cadre.deploy.k8s.labels import labels
from cadre.deploy.k8s.manifest import Manifest, manifest
from cadre.deploy.k8s.network_policies import network_policies
from cadre.deploy.k8s.provision_job import provision_job
from cadre.deploy.k8s.values import Values, check_names
from cadre.deploy.k8s.workloads import workload_manifests
from cadre.errors import SpecError

SHARED = "cadre"
"""File of what belongs to no single service."""


def render(pieces: Sequence[Piece], values: Values, only: str | None = None) -> dict[str, list[Manifest]]:
    """Manifests by file, without its suffix. `only` is the key of one piece: what is shared is left out then.

    Raises SpecError for values that fit no manifest, and names no piece has.
    """
    check_names(values, [*names(pieces), "provision"])
    if only is None:
        return {
            SHARED: _shared(pieces, values),
            **{piece.id: workload_manifests(piece, values) for piece in pieces},
        }
    chosen = [piece for piece in pieces if piece.key == only]
    if not chosen:
        raise SpecError(f"there is no {only!r} in this team; there are: {', '.join(names(pieces))}")
    return {piece.id: [*_provision(chosen, values), *workload_manifests(piece, values)] for piece in chosen}


def _shared(pieces: Sequence[Piece], values: Values) -> list[Manifest]:
    roles = sorted({*(piece.role for piece in pieces), "provision"})
    accounts = [
        manifest(
            "v1", "ServiceAccount", _metadata(values, f"cadre-{role}"), automountServiceAccountToken=False
        )
        for role in roles
    ]
    own = {piece.id for piece in pieces}
    shared = {p.files.name: p.files for p in pieces if p.files is not None and p.files.name not in own}
    return [
        _namespace(values),
        *accounts,
        *network_policies(pieces, values),
        *(config_map(files, _metadata(values, name)) for name, files in shared.items()),
        *_provision(pieces, values),
    ]


def _provision(pieces: Sequence[Piece], values: Values) -> list[Manifest]:
    return [provision_job(pieces, values)] if any(piece.provides for piece in pieces) else []


def _namespace(values: Values) -> Manifest:
    marks = labels(values.namespace, "namespace") | {"pod-security.kubernetes.io/enforce": "restricted"}
    return manifest("v1", "Namespace", {"name": values.namespace, "labels": marks})


def _metadata(values: Values, name: str) -> dict[str, object]:
    return {"name": name, "namespace": values.namespace, "labels": labels(name, "shared")}
