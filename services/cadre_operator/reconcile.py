"""One namespace brought to what its objects say, however far from that it is."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml

from cadre.automation.automation_file import DEFINITIONS, AnySpec, Definition
from cadre.deploy.k8s.manifest import COMPONENT, NAME, PART_OF, Manifest
from cadre.deploy.k8s.object_kinds import GROUP, OBJECT_KINDS
from cadre.deploy.k8s.values import Values, read_values
from cadre.deploy.nats_files import SERVER_SECRET
from cadre.errors import SpecError
from cadre_operator.cluster import ApiError, Cluster
from cadre_operator.desired import (
    CLAIM,
    Desired,
    Key,
    Noted,
    desired,
    is_ours,
    live_owners,
    superfluous,
    with_count,
)
from cadre_operator.gateways import NOTES, DefinitionObjects, Notes
from cadre_operator.namespace import Objects, read_namespace
from cadre_operator.nats_users import NatsList, Users
from cadre_operator.status import (
    ACCEPTED,
    CRASHES,
    PROGRESSING,
    Condition,
    held_back,
    mounts_of,
    of_deployment,
    refused,
    replicas,
    status_with,
)

VALUES_MAP = "cadre-values"
"""The ConfigMap with the values of a namespace, under its one key."""

USERS_ANNOTATION = "cadre.dev/users-hash"
"""The annotation of a pod of NATS that changes with the list of its users."""

_logger = logging.getLogger(__name__)

_VALUES_KEY = "kubernetes.yaml"
_ASKED_ABOUT = 4
"""Keys that NATS is asked about in a round: a server that reads no users knows none of the new ones."""
_MADE = (
    "Secret",
    "ServiceAccount",
    "NetworkPolicy",
    "CiliumNetworkPolicy",
    "ConfigMap",
    "Deployment",
    "PodDisruptionBudget",
    "Service",
    "ScaledObject",
)
"""Kinds that the operator makes and removes. Jobs expire, unless others take their places before."""

_NOT_INSTALLED = {
    "ScaledObject": "KEDA is not installed: replicas follow no queue",
    "CiliumNetworkPolicy": "Cilium is not installed: what may leave the cluster reaches nothing (say cilium: false)",
}
"""The status in a cluster that does not know a kind."""


class _Unsettled(NamedTuple):
    """The objects of a namespace, and what followed from them."""

    objects: Objects
    wanted: Desired
    values: Values
    served: dict[str, Noted]
    """Their requests, in this round or in an earlier one that the gateway has not received."""
    kept: set[str]
    """Names of the Deployments that serve although no object asks for them: their objects were deleted without them, or
    are refused now."""


class Reconciler:
    """Brings namespaces up to date, one at a time. `layers` are the operator's own values."""

    def __init__(
        self,
        cluster: Cluster,
        definitions: DefinitionObjects,
        notes: Notes,
        layers: Sequence[Mapping[str, Any]],
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._notes = notes
        self._layers = layers
        self._nats_list = NatsList()
        self._unsettled: dict[str, _Unsettled] = {}
        """By namespace, what its gateway is yet to hear of."""
        self._applied: dict[str, dict[Key, tuple[bytes, Any]]] = {}
        """By namespace, of what its objects still ask for: a digest of the manifest that was applied, and the version
        that the object had then."""

    async def namespaces(self) -> set[str]:
        """Return the namespaces that have objects. Raise what Cluster does."""
        return {
            one["metadata"]["namespace"] for kind in OBJECT_KINDS for one in await self._cluster.list(kind.kind, "")
        }

    async def reconcile(self, namespace: str) -> bool:
        """Apply, remove and tell; return whether anything is left in the namespace to look after.

        Raises what Cluster does: then it is to be tried again.
        """
        # Before its owners: what the cluster frees of an owner after this look is not given that owner again.
        found = [one for kind in _MADE for one in await self._cluster.list(kind, namespace, f"{PART_OF}=cadre")]
        objects = {one.kind: await self._cluster.list(one.kind, namespace) for one in OBJECT_KINDS}
        live = {
            kind: [one for one in found if not one["metadata"].get("deletionTimestamp")]
            for kind, found in objects.items()
        }
        try:
            values = await self._values(namespace)
        except SpecError as error:
            for refusing in (one for many in live.values() for one in many):
                await self._tell(refusing, held_back(refusing, f"ConfigMap {VALUES_MAP}: {error}"), {})
            return True
        uids = _uids(live)
        existing = [one for one in found if is_ours(one)]
        others = {(one["kind"], one["metadata"]["name"]) for one in found if not is_ours(one)}
        secrets = [one for one in found if one["kind"] == "Secret"]
        admin = await self._cluster.get("Secret", namespace, values.gateway.secret)
        wanted = await self._wanted(live, values, existing, secrets, others, admin)
        jobs = await self._cluster.list("Job", namespace, f"{PART_OF}=cadre,{COMPONENT}=provision")
        present = {_key(one): one for one in existing}
        notes = await self._apply(namespace, wanted, present, jobs, live, values)
        for one in superfluous([*existing, *filter(is_ours, jobs)], wanted, uids):
            await self._cluster.delete(one)
        pods = await self._cluster.list("Pod", namespace, f"{PART_OF}=cadre")
        await self._tell_all(live, wanted, values, jobs, [*present.values(), *pods], notes)
        await self._begin_to_count(namespace, live, wanted, existing)
        kept = {
            one["metadata"]["name"]
            for one in existing
            if one["kind"] == "Deployment"
            and (not (owners := live_owners(one, uids)) or not owners.isdisjoint(wanted.problems))
        }
        served = self._unsettled[namespace].served if namespace in self._unsettled else {}
        self._unsettled[namespace] = _Unsettled(live, wanted, values, served | wanted.served, kept)
        # The notes may stay, and ask for nothing.
        left = [one for one in existing if one["metadata"]["name"] != NOTES]
        return bool(left or jobs or any(objects.values()))

    async def settle(self, namespace: str) -> None:
        """Bring the namespace's gateway up to date with what its last round has found.

        Raises SpecError when the gateway cannot be brought there, and what Cluster does: then it is to be tried again.
        """
        if (found := self._unsettled.pop(namespace, None)) is None:
            return
        definitions = [(kind, one) for kind in DEFINITIONS for one in found.objects[kind.kind]]
        paths = [f"{kind.path}/{one['metadata']['name']}" for kind, one in definitions]
        asked = found.wanted.served | dict.fromkeys(paths, Noted())
        noted = await self._notes.add(found.values, found.served | asked)
        settled = await asyncio.gather(
            *(self._define(kind, one, found) for kind, one in definitions), return_exceptions=True
        )
        failed = await self._notes.follow(found.values, noted, asked, found.kept)
        for failure in settled:
            if isinstance(failure, BaseException):
                raise failure
        if failed:
            raise SpecError(failed)

    async def _define(self, kind: Definition[AnySpec], one: Manifest, found: _Unsettled) -> None:
        conditions = await self._definitions.settle(kind, one, found.values)
        lack = found.wanted.lacks[one["metadata"]["uid"]]
        await self._tell(one, (*conditions, _complete(lack)), {})
        for condition in conditions:
            if condition.reason == "GatewayRefused":
                raise SpecError(condition.message)

    async def _values(self, namespace: str) -> Values:
        """Return the operator's values, those of the namespace over them. They cannot change its name."""
        found = await self._cluster.get("ConfigMap", namespace, VALUES_MAP)
        text = ((found or {}).get("data") or {}).get(_VALUES_KEY, "")
        try:
            own = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise SpecError(f"not YAML: {' '.join(str(error).split())}", key=_VALUES_KEY) from error
        if not isinstance(own, dict):
            raise SpecError("must be a mapping, as docs/deploy.md shows", key=_VALUES_KEY)
        return read_values(*self._layers, own, {"namespace": namespace})

    @staticmethod
    async def _wanted(
        live: Objects,
        values: Values,
        existing: Sequence[Manifest],
        secrets: Sequence[Manifest],
        others: Collection[Key],
        admin: Manifest | None,
    ) -> Desired:
        # A round that is cancelled leaves its thread writing.
        with TemporaryDirectory(prefix="cadre-", ignore_cleanup_errors=True) as folder:
            reading = await asyncio.to_thread(read_namespace, live, values, Path(folder))
        wanted = desired(reading, Users(secrets), others, admin)
        # A user whose Secret goes is left out of the server's list in the same step.
        gone = [
            one["metadata"]["name"] for one in superfluous(existing, wanted, _uids(live)) if one["kind"] == "Secret"
        ]
        return desired(reading, Users(secrets, gone), others, admin) if gone else wanted

    async def _apply(
        self,
        namespace: str,
        wanted: Desired,
        found: dict[Key, Manifest],
        jobs: Sequence[Manifest],
        live: Objects,
        values: Values,
    ) -> list[str]:
        """Apply what is wanted; return why some of it cannot be applied here. `found` are the objects that are there,
        and then as they are now: what is told afterwards is true at once."""
        versions = {key: _version(one) for key, one in found.items()}
        done = {one["metadata"]["name"] for one in jobs} | {
            name
            for many in live.values()
            for one in many
            for name in (one.get("status") or {}).get("provisioned") or ()
        }
        notes: list[str] = []
        before = self._applied.pop(namespace, {})
        self._applied[namespace] = applied = {key: before[key] for key in wanted.manifests if key in before}
        for key, manifest in wanted.manifests.items():
            if key[0] == "Job" and key[1] in done:
                continue
            if key[0] == CLAIM and await self._cluster.get(CLAIM, namespace, key[1]) is not None:
                continue  # of a volume hardly anything can be changed, and not everywhere
            if key[0] == "Deployment":
                manifest = with_count(manifest, found.get(key))
            digest = sha256(json.dumps(manifest, sort_keys=True).encode()).digest()
            if key in versions and applied.get(key) == (digest, versions[key]):
                continue
            try:
                made = await self._cluster.apply(manifest, found.get(key))
            except ApiError as error:
                if key[0] not in _NOT_INSTALLED or error.status != 404:
                    raise
                note = _NOT_INSTALLED[key[0]]
                notes += [] if note in notes else [note]
                continue
            applied[key] = (digest, _version(made))
            found[key] = {"apiVersion": manifest["apiVersion"], "kind": key[0], **made}
            if key == ("Secret", SERVER_SECRET):
                await self._hasten(values, digest.hex()[:16])
        if not applied:
            del self._applied[namespace]
        return notes

    async def _begin_to_count(
        self, namespace: str, live: Objects, wanted: Desired, existing: Sequence[Manifest]
    ) -> None:
        """Write the number of its pods into each object that says none and that a HorizontalPodAutoscaler names: it
        reads no number as 0, and takes 0 for "switched off"."""
        autoscalers = await self._cluster.list("HorizontalPodAutoscaler", namespace)
        named = {
            (target["kind"], target["name"])
            for one in autoscalers
            if (target := one["spec"]["scaleTargetRef"]).get("apiVersion", "").startswith(f"{GROUP}/")
        }
        counts = {
            one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in existing if one["kind"] == "Deployment"
        }
        for kind in ("Agent", "ToolServer"):
            for one in live[kind]:
                names = wanted.deployments.get(one["metadata"]["uid"], [])
                is_named = (kind, one["metadata"]["name"]) in named
                if is_named and names and one["spec"].get("replicas") is None:
                    await self._cluster.scale(one, max(1, counts.get(names[0], 1)))

    async def _hasten(self, values: Values, digest: str) -> None:
        """Have the kubelet bring the new list of users to the pods of NATS at once: it looks at what a pod mounts when
        the pod changes, and otherwise once a minute."""
        labels = ",".join(f"{key}={value}" for key, value in values.nats.pods.items())
        if not labels:
            return  # the server is outside the cluster
        try:
            for pod in await self._cluster.list("Pod", values.nats.namespace or values.namespace, labels):
                await self._cluster.annotate(pod, {USERS_ANNOTATION: digest})
        except ApiError as error:
            if error.status != 403:
                raise
            _logger.info("%s: %s; NATS has its new users when its kubelet looks again", values.namespace, error)

    async def _unmounted(self, namespace: str, pods: Sequence[Manifest]) -> dict[str, str]:
        """Return by the name of a pod that has not begun the Secret, ConfigMap or key that it mounts and is not there:
        no status of the pod says so."""
        mounts = {pod["metadata"]["name"]: mounts_of(pod) for pod in pods}
        wanted = {(kind, name) for many in mounts.values() for kind, name, _ in many}
        there = {(kind, name): await self._cluster.get(kind, namespace, name) for kind, name in sorted(wanted)}
        found: dict[str, str] = {}
        for pod, many in mounts.items():
            for kind, name, keys in many:
                holder = there[kind, name]
                held = {**((holder or {}).get("data") or {}), **((holder or {}).get("binaryData") or {})}
                if holder is None:
                    found[pod] = f"there is no {kind} {name}"
                elif lost := [key for key in keys if key not in held]:
                    found[pod] = f"{kind} {name} has no {', '.join(lost)}"
        return found

    async def _tell_all(
        self,
        live: Objects,
        wanted: Desired,
        values: Values,
        jobs: Sequence[Manifest],
        existing: Sequence[Manifest],
        notes: Sequence[str],
    ) -> None:
        found = {one["metadata"]["name"]: one for one in existing if one["kind"] == "Deployment"}
        note = "; ".join(notes)
        pods: dict[str, list[Manifest]] = {}
        all_pods = [one for one in existing if one["kind"] == "Pod"]
        unmounted = await self._unmounted(values.namespace, all_pods)
        for pod in all_pods:
            pods.setdefault((pod["metadata"].get("labels") or {}).get(NAME, ""), []).append(pod)
        ready = {
            one["metadata"]["uid"]: self._ready(one, wanted, found, pods, note, unmounted)
            for kind in ("Agent", "ToolServer", "Model", "Team")
            for one in live[kind]
        }
        if unread := await self._nats_list.unread(values, _keys_of_waiting(wanted, found, pods)):
            for uid, condition in ready.items():
                if not condition.holds and wanted.deployments.get(uid):
                    ready[uid] = Condition("Ready", False, "UsersNotRead", unread)
        for kind in ("Agent", "ToolServer", "Model", "Team"):
            for one in live[kind]:
                uid = one["metadata"]["uid"]
                conditions: tuple[Condition, ...] = (ACCEPTED, ready[uid])
                if uid in wanted.problems:
                    conditions = refused(wanted.problems[uid])
                elif (lack := wanted.lacks.get(uid)) is not None:
                    conditions = (*conditions, _complete(lack))
                more: dict[str, Any] = {}
                names = wanted.deployments.get(uid, [])
                if kind in ("Agent", "ToolServer") and names:
                    more = replicas(found.get(names[0]))
                if uid not in wanted.problems and (made := _provisioned(one, jobs, wanted)) is not None:
                    more["provisioned"] = made
                await self._tell(one, conditions, more)

    @staticmethod
    def _ready(
        one: Manifest,
        wanted: Desired,
        found: Mapping[str, Manifest],
        pods: Mapping[str, Sequence[Manifest]],
        note: str,
        unmounted: Mapping[str, str],
    ) -> Condition:
        if one["kind"] == "Model":
            return Condition("Ready", True, "Read")
        names = wanted.deployments.get(one["metadata"]["uid"], [])
        each = {name: of_deployment(found.get(name), pods.get(name, ()), note, unmounted) for name in names}
        waiting = [name for name, condition in each.items() if not condition.holds]
        if not waiting:
            return Condition("Ready", True, "Available", note)
        # What has failed says more than what is under way.
        worst = next((name for name in waiting if each[name].reason != PROGRESSING), waiting[0])
        if each[worst].reason == PROGRESSING and len(each) > 1:
            return Condition("Ready", False, PROGRESSING, f"not ready yet: {', '.join(waiting)}")
        return each[worst]

    async def _tell(self, one: Manifest, conditions: tuple[Condition, ...], more: Mapping[str, Any]) -> None:
        status, news = status_with(one, conditions, more)
        if status is None:
            return
        await self._cluster.patch_status(one, status)
        told: set[str] = set()
        for condition in news:
            if condition.reason not in told:
                told.add(condition.reason)
                is_warning = not condition.holds and condition.reason != PROGRESSING
                message = condition.message or f"{one['kind']} {one['metadata']['name']}: {condition.reason.lower()}"
                await self._cluster.tell(one, condition.reason, message, is_warning=is_warning)


def _keys_of_waiting(
    wanted: Desired, found: Mapping[str, Manifest], pods: Mapping[str, Sequence[Manifest]]
) -> list[Manifest]:
    """Return the Secrets with the NATS keys of some services that are not ready for no reason that Kubernetes has."""
    names = sorted({name for many in wanted.deployments.values() for name in many} & found.keys())
    waiting = [
        name for name in names if of_deployment(found[name], pods.get(name, ())).reason in (PROGRESSING, CRASHES)
    ]
    mounted = [
        volume["secret"]["secretName"]
        for name in waiting[:_ASKED_ABOUT]
        for volume in found[name]["spec"]["template"]["spec"].get("volumes") or ()
        if volume["name"] == "nats"
    ]
    return [wanted.manifests[key] for secret in mounted if (key := ("Secret", secret)) in wanted.manifests]


def _complete(lack: str) -> Condition:
    return Condition("Complete", not lack, "Missing" if lack else "Found", lack)


def _uids(live: Objects) -> set[str]:
    return {one["metadata"]["uid"] for many in live.values() for one in many}


def _key(found: Manifest) -> Key:
    return found["kind"], found["metadata"]["name"]


def _version(found: Manifest) -> Any:
    """Return a value that changes when the object is changed: not with its status, where it has one."""
    meta = found["metadata"]
    return meta.get("generation") or meta["resourceVersion"]


def _provisioned(one: Manifest, jobs: Sequence[Manifest], wanted: Desired) -> list[str] | None:
    """Return the Jobs of now that have made queues for the object, sooner or later; None when nothing was ever noted. A
    Job that another has replaced is forgotten: changing the object back runs it again."""
    uid = one["metadata"]["uid"]
    known = (one.get("status") or {}).get("provisioned")
    done = [
        job["metadata"]["name"]
        for job in jobs
        if (job.get("status") or {}).get("succeeded")
        and any(owner["uid"] == uid for owner in job["metadata"].get("ownerReferences") or ())
    ]
    if known is None and not done:
        return None
    return sorted(name for name in {*(known or ()), *done} if ("Job", name) in wanted.manifests)
