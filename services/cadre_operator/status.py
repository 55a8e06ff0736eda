"""The status of an object, and the part of it that is news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from cadre.deploy.k8s.manifest import Manifest


class Condition(NamedTuple):
    """One condition of an object."""

    type: str
    holds: bool
    reason: str
    message: str = ""


ACCEPTED = Condition("Accepted", True, "Rendered")
PROGRESSING = "Progressing"
CRASHES = "CrashLoopBackOff"

_OF_TOOLS = ("Reconciling", "Stalled")
_STARTING = ("ContainerCreating", "PodInitializing")
_TRIED_AGAIN = (PROGRESSING, "GatewayRefused")
"""Reasons of what is not ready, but under way."""


def refused(message: str) -> tuple[Condition, Condition]:
    """Return the conditions of an object that cannot be acted on: what it made earlier goes on."""
    return Condition("Accepted", False, "Invalid", message), Condition("Ready", False, "Invalid", message)


def held_back(found: Manifest, message: str) -> tuple[Condition, Condition]:
    """Return the conditions of an object that cannot be acted on for a reason outside of it: what is ready stays so."""
    accepted, ready = refused(message)
    for one in (found.get("status") or {}).get("conditions") or ():
        if one["type"] == "Ready" and one["status"] == "True":
            ready = Condition("Ready", True, one["reason"], one["message"])
    return accepted, ready


def of_deployment(
    found: Manifest | None,
    pods: Sequence[Manifest] = (),
    note: str = "",
    unmounted: Mapping[str, str] = MappingProxyType({}),
) -> Condition:
    """Return whether the pods of a Deployment's present template are there for work. `pods` are the Deployment's;
    `unmounted` says by the name of a pod which of its volumes cannot be mounted."""
    if found is None:
        return _progressing("its Deployment is not there yet")
    status, wanted = found.get("status") or {}, (found.get("spec") or {}).get("replicas", 1)
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return _progressing("its Deployment is being changed")
    if (trouble := next(filter(None, map(pod_trouble, pods)), None)) is not None:
        return Condition("Ready", False, *trouble)
    for pod in pods:
        if lack := unmounted.get(pod["metadata"]["name"]):
            return Condition("Ready", False, "FailedMount", f"pod {pod['metadata']['name']}: {lack}")
    for one in status.get("conditions") or ():
        # A quota, or a rule for pods, is against them.
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            return Condition("Ready", False, one.get("reason", "FailedCreate"), one.get("message", ""))
        if one["type"] == "Progressing" and one.get("reason") == "ProgressDeadlineExceeded":
            return Condition("Ready", False, "ProgressDeadlineExceeded", one.get("message", ""))
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < wanted:
        return _progressing(f"{updated} of {wanted} pods are there in the present form")
    if (old := status.get("replicas", 0) - updated) > 0:
        return _progressing(f"{old} pods of the former form are still there")
    if available < wanted:
        return _progressing(f"{available} of {wanted} pods are ready")
    return Condition("Ready", True, "Available", note)


def _progressing(message: str) -> Condition:
    return Condition("Ready", False, PROGRESSING, message)


def pod_trouble(pod: Manifest) -> tuple[str, str] | None:
    """Return the reason why a pod does not start, as Kubernetes has it, and a message; None without a known reason."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return None
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable":
            return "Unschedulable", f"pod {name}: {one.get('message', '')}"
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if one.get("ready"):
            continue
        waiting = (one.get("state") or {}).get("waiting") or {}
        ended = (one.get("state") or {}).get("terminated") or (one.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") == CRASHES or (ended.get("exitCode") and not waiting):
            why = ended.get("reason", "Error")
            return why if why == "OOMKilled" else CRASHES, (
                f"pod {name}: ended {one.get('restartCount', 0) + bool(not waiting)} times, the last time with"
                f" {why} (exit status {ended.get('exitCode')}): `kubectl logs --previous {name}`"
            )
        if waiting.get("reason") not in (None, *_STARTING):
            return waiting["reason"], f"pod {name}: {waiting.get('message') or one.get('image', '')}"
    return None


def mounts_of(pod: Manifest) -> list[tuple[str, str, list[str]]]:
    """Return what a pod that has not begun cannot begin without: kind, name and keys of each Secret and ConfigMap that
    it mounts."""
    status = pod.get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    if {(one.get("waiting") or {}).get("reason") for one in states}.isdisjoint(_STARTING):
        return []
    spec, sources = pod["spec"], list[Manifest]()
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    mounted = {mount["name"] for one in containers for mount in one.get("volumeMounts") or ()}
    for volume in (one for one in spec.get("volumes") or () if one["name"] in mounted):
        sources += [volume, *((volume.get("projected") or {}).get("sources") or ())]
    found = []
    for source in sources:
        for kind, field, name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            about = source.get(field) or {}
            called = about.get(name) or about.get("name")
            if called and not about.get("optional"):
                found.append((kind, called, [item["key"] for item in about.get("items") or ()]))
    return found


def replicas(found: Manifest | None) -> dict[str, Any]:
    """Return the counts of a Deployment's pods, and what selects them."""
    status = (found or {}).get("status") or {}
    labels = (((found or {}).get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    counts = {key: status.get(key, 0) for key in ("replicas", "readyReplicas")}
    return {**counts, "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items()))}


def status_with(
    found: Manifest, conditions: tuple[Condition, ...], more: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, list[Condition]]:
    """Return the status that the object is to have, None when it has it; and the conditions that are news."""
    before = found.get("status") or {}
    known = {one["type"]: one for one in before.get("conditions") or ()}
    generation = found["metadata"]["generation"]
    written, news = [], []
    for one in (*conditions, *_kstatus(conditions)):
        old = known.get(one.type, {})
        status = "True" if one.holds else "False"
        is_same = old.get("status") == status
        if not is_same or old.get("reason") != one.reason or (not one.holds and old.get("message") != one.message):
            news += [one] if one.type not in _OF_TOOLS else []
        written.append(
            {
                "type": one.type,
                "status": status,
                "reason": one.reason,
                "message": one.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if is_same else _now(),
            }
        )
    after = {"observedGeneration": generation, **more, "conditions": written}
    changed = any(before.get(key) != value for key, value in after.items())
    return (after if changed else None), news


def _kstatus(conditions: tuple[Condition, ...]) -> list[Condition]:
    """Return the conditions by which Helm, Flux and Argo CD tell what is under way from what has failed: each is there
    only while it holds."""
    return [
        Condition("Reconciling" if one.reason in _TRIED_AGAIN else "Stalled", True, one.reason, one.message)
        for one in conditions
        if one.type == "Ready" and not one.holds
    ]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
