"""The desired objects of a namespace: rendered as `cadre k8s render` does it, and owned by the objects they are for."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, NamedTuple

import msgspec

from cadre.deploy.k8s.manifest import CADRE, MANAGED_BY, Manifest, manifest
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import GATEWAY_SECRET, Nats, Values
from cadre.deploy.nats_files import SERVER_SECRET
from cadre.errors import SpecError
from cadre.protocol.nats_users import Role, tools_of
from cadre_operator.cluster import MANAGER
from cadre_operator.namespace import Reading, Service
from cadre_operator.nats_users import Users

_RUNNING = ("Deployment", "Job", "ScaledObject")
"""Kinds whose pods mount what the others are: these come last."""

CLAIM = "PersistentVolumeClaim"
ADMIN_KEY = "CADRE_ADMIN_KEY"

_COUNT = "cadre.dev/replicas"
"""The annotation of a Deployment with the number of replicas that its object or the values say."""

Key = tuple[str, str]
"""Kind and name of an object in the namespace."""


class Noted(msgspec.Struct, frozen=True):
    """The requests of objects to their namespace's gateway under one path."""

    deployment: str = ""
    """Name of the Deployment that serves it; empty where none does."""


class Desired(NamedTuple):
    """The objects that a namespace is to have, in the order in which they are applied."""

    manifests: dict[Key, Manifest]
    problems: dict[str, str]
    """The errors in objects, by uid."""
    deployments: dict[str, list[str]]
    """Names of the Deployments of an object, by its uid."""
    served: dict[str, Noted]
    """The agents, tools and pools that the services are for, by their path at the gateway."""
    lacks: dict[str, str]
    """The agents and tools that an object names and nothing here is, by its uid; "" when there are all."""


def desired(reading: Reading, users: Users, others: Collection[Key], admin: Manifest | None = None) -> Desired:
    """Return what the services need. `others` are objects made by others: they stay as they are. `admin` is the Secret
    that the values name for the gateway, where it exists."""
    values, found = reading.values, Desired({}, dict(reading.problems), {}, {}, reading.lacks)
    has_users = values.nats.credentials == Nats().credentials
    roles: list[Role] = []
    for service in reading.services:
        name = service.component.id
        if ("Deployment", name) in others:
            for owner in service.owners:
                if owner["kind"] != "Team":  # what a team has in common may be a chart's
                    found.problems[owner["metadata"]["uid"]] = (
                        f"the Deployment {name} is there, and not the operator's: remove it, or this object"
                    )
            continue
        try:
            manifests = _rendered(service, values)
        except SpecError as error:
            for owner in service.owners:
                found.problems[owner["metadata"]["uid"]] = str(error)
            continue
        if has_users:
            manifests = [users.secret(service.role, values.namespace), *manifests]
            roles.append(service.role)
        for owner in service.owners:
            found.deployments.setdefault(owner["metadata"]["uid"], []).append(name)
        found.served.update(dict.fromkeys(_paths(service.role), Noted(name)))
        if service.role.kind == "gateway":
            manifests = [*_of_administrator(manifests, values, admin), *manifests]
        for one in manifests:
            _add(found.manifests, one, service.owners)
    if roles:
        owners = [owner for service in reading.services for owner in service.owners]
        for kind in ("operator", "tracer", "gateway"):
            _add(found.manifests, users.secret(Role(kind=kind), values.namespace), owners)
    for key in [key for key in found.manifests if key in others]:
        del found.manifests[key]
    if roles:
        # It goes with the last of them: left behind, it would lock out the services of a later installation.
        _add(found.manifests, users.server_secret(values), owners)
    # First of all: the server knows a user before the user's pods begin.
    ordered = sorted(
        found.manifests.items(), key=lambda one: (one[0] != ("Secret", SERVER_SECRET), one[0][0] in _RUNNING)
    )
    return found._replace(manifests=dict(ordered))


def _of_administrator(manifests: list[Manifest], values: Values, admin: Manifest | None) -> list[Manifest]:
    """Return the Secret with the administrator's key of a gateway that asks for one, unless others have made it. The
    gateway's pods read it when they start, so a digest of it rolls them."""
    template = next(one for one in manifests if one["kind"] == "Deployment")["spec"]["template"]
    data = dict((admin or {}).get("data") or {})
    made: list[Manifest] = []
    if (
        values.gateway.secret == GATEWAY_SECRET
        and (admin is None or is_ours(admin))
        and _asks_for(template, GATEWAY_SECRET, ADMIN_KEY)
    ):
        key = data.setdefault(ADMIN_KEY, b64encode(token_urlsafe(36).encode()).decode())
        about = {"name": GATEWAY_SECRET, "namespace": values.namespace, "labels": dict(CADRE)}
        made = [manifest("v1", "Secret", about, type="Opaque", data={ADMIN_KEY: key})]
    if data:
        digest = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
        template["metadata"].setdefault("annotations", {})["cadre.dev/gateway-secret-hash"] = digest
    return made


def _asks_for(template: Manifest, secret: str, key: str) -> bool:
    return any(
        ((variable.get("valueFrom") or {}).get("secretKeyRef") or {}).items() >= {"name": secret, "key": key}.items()
        for container in template["spec"]["containers"]
        for variable in container.get("env") or ()
    )


def _paths(role: Role) -> list[str]:
    """Return the path at the gateway of each agent, tool and pool that a service of this role is for."""
    paths = [f"/v1/tools/{tool}" for tool in tools_of(role)]
    rooms = {"agent": "agents", "sandbox": "sandboxes"}
    return [*paths, f"/v1/{rooms[role.kind]}/{role.name}"] if role.kind in rooms else paths


def _rendered(service: Service, values: Values) -> list[Manifest]:
    key = service.component.key
    # Values may name services whose objects are not there yet.
    workloads = {name: one for name, one in values.workloads.items() if "*" in name or name in (key, "provision")}
    if service.replicas is not None:
        workloads[key] = {**workloads.get(key, {}), "replicas": service.replicas, "scale": None}
    files = render([service.component], msgspec.structs.replace(values, workloads=workloads), key)
    return [manifest for manifests in files.values() for manifest in manifests]


def _add(manifests: dict[Key, Manifest], manifest: Manifest, owners: Iterable[Manifest]) -> None:
    key = (manifest["kind"], manifest["metadata"]["name"])
    known = manifests.setdefault(key, _marked(manifest))
    if found := manifest["metadata"].get("annotations"):
        # Of the Secret of a user that several services are: it has what any of them needs.
        known["metadata"]["annotations"] = found
    if manifest["kind"] == CLAIM:
        return  # what is kept on a volume outlives the object that asked for it
    references: list[dict[str, Any]] = known["metadata"].setdefault("ownerReferences", [])
    for owner in owners:
        meta = owner["metadata"]
        if all(one["uid"] != meta["uid"] for one in references):
            whose = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
            whose |= {"name": meta["name"], "uid": meta["uid"]}
            # With `--cascade=foreground` the object is there until this is gone.
            references.append({**whose, "blockOwnerDeletion": True})


def _marked(manifest: Manifest) -> Manifest:
    meta = manifest["metadata"]
    return {
        **manifest,
        "metadata": {**meta, "labels": {**(meta.get("labels") or CADRE), MANAGED_BY: MANAGER}},
    }


def is_ours(one: Manifest) -> bool:
    """Return whether the operator has made the object."""
    labels: dict[str, str] = one["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER


def superfluous(existing: Sequence[Manifest], wanted: Desired, live: Collection[str]) -> list[Manifest]:
    """Return what the operator has made and the objects that own it do not need any more. What belongs to an object
    that is refused now stays. What has lost its last owner is the cluster's to remove, or to leave alone."""
    return [
        one
        for one in existing
        if (one["kind"], one["metadata"]["name"]) not in wanted.manifests
        and (owners := live_owners(one, live))
        and owners.isdisjoint(wanted.problems)
    ]


def live_owners(one: Manifest, live: Collection[str]) -> set[str]:
    """Return the uids of those of its owners that are there, and not going away."""
    return {owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()} & {*live}


def with_count(deployment: Manifest, found: Manifest | None) -> Manifest:
    """Return the Deployment with the number of replicas that the operator decides on. `found` is the one in the
    cluster.

    A number that an autoscaler or `kubectl scale` has set stays until the objects or the values say another one than
    before. Where they say none, the operator keeps the number of now until somebody else has set one: a field that its
    last manager gives up falls back to 1.
    """
    spec, about = deployment["spec"], (found or {}).get("metadata") or {}
    set_by = [
        one
        for one in about.get("managedFields") or ()
        if "f:replicas" in ((one.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    if "replicas" not in spec:
        if found is None or all(one["manager"] != MANAGER for one in set_by):
            return deployment
        return {**deployment, "spec": {**spec, "replicas": found["spec"]["replicas"]}}
    said = {_COUNT: str(spec["replicas"])}
    is_as_before = said.items() <= (about.get("annotations") or {}).items()
    if is_as_before and any(one.get("subresource") == "scale" for one in set_by):
        spec = {key: value for key, value in spec.items() if key != "replicas"}
    own = deployment["metadata"]
    annotations = {**own.get("annotations", {}), **said}
    return {**deployment, "metadata": {**own, "annotations": annotations}, "spec": spec}
