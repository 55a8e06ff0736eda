"""A pod as a whole: who owns it, what it mounts, how long it may take to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cadre.deploy.k8s.lint.objects import Objects, Pod, key_of, kind_of, mapping, mappings, matches

_STRATEGIES = {
    "Deployment": ("strategy", ("RollingUpdate", "Recreate")),
    "StatefulSet": ("updateStrategy", ("RollingUpdate", "OnDelete")),
    "DaemonSet": ("updateStrategy", ("RollingUpdate", "OnDelete")),
}
_RESTARTS = {"Job": ("OnFailure", "Never")}
_SPREADS = ("ScheduleAnyway", "DoNotSchedule")
_DEFAULT_GRACE_SECONDS = 30
"""Grace period of a pod that names none."""


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    for pod in objects.pods:
        yield from _owner(pod)
        yield from _volumes(pod)
        yield from _grace(pod)
        for spread in mappings(pod.spec, "topologySpreadConstraints"):
            if not matches(mapping(spread, "labelSelector"), pod.labels):
                yield f"{pod.where}: topologySpreadConstraints select other pods than these"
            if spread.get("whenUnsatisfiable") not in _SPREADS:
                yield f"{pod.where}: whenUnsatisfiable must be one of {', '.join(_SPREADS)}"


def _owner(pod: Pod) -> Iterator[str]:
    kind = kind_of(pod.owner)
    selector = mapping(pod.owner, "spec", "selector")
    if kind != "Job" and not (selector and matches(selector, pod.labels)):
        yield f"{pod.where}: its selector does not match the labels of its template"
    if kind in _STRATEGIES:
        field, known = _STRATEGIES[kind]
        chosen = mapping(pod.owner, "spec", field).get("type", known[0])
        if chosen not in known:
            yield f"{key_of(pod.owner)}: {field}.type {chosen!r}: must be one of {', '.join(known)}"
        if chosen != "RollingUpdate" and mapping(pod.owner, "spec", field, "rollingUpdate"):
            yield f"{key_of(pod.owner)}: rollingUpdate goes with the type RollingUpdate only"
    restarts = _RESTARTS.get(kind, ("Always",))
    if pod.spec.get("restartPolicy", "Always") not in restarts:
        yield f"{pod.where}: restartPolicy must be {' or '.join(restarts)}"


def _volumes(pod: Pod) -> Iterator[str]:
    names = [volume.get("name") for volume in mappings(pod.spec, "volumes")]
    names += [
        m.get("name")
        for claim in mappings(pod.owner, "spec", "volumeClaimTemplates")
        if (m := mapping(claim, "metadata"))
    ]
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{pod.where}: {count} volumes are named {name!r}"
    mounted = {mount.get("name") for c in pod.containers for mount in mappings(c, "volumeMounts")}
    for name in sorted(map(str, mounted - set(names))):
        yield f"{pod.where}: mounts {name!r}, which is no volume of it"
    for name in sorted(map(str, set(names) - mounted)):
        yield f"{pod.where}: its volume {name!r} is mounted nowhere"


def _grace(pod: Pod) -> Iterator[str]:
    grace = pod.spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    for container in pod.containers:
        drain = _drain(container)
        if drain is not None and isinstance(grace, int) and drain >= grace:
            yield f"{pod.where}: it may drain for {drain:g} s, but is killed after {grace} s"


def _drain(container: dict[str, Any]) -> float | None:
    for variable in mappings(container, "env"):
        if variable.get("name") == "CADRE_DRAIN_SECONDS":
            try:
                return float(variable.get("value", ""))
            except (TypeError, ValueError):
                return None
    return None
