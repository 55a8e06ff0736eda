"""What the Pod Security Standard `restricted` asks of every pod, and what Cadre asks beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cadre.deploy.k8s.labels import COMPONENT, PART_OF
from cadre.deploy.k8s.lint.objects import Objects, Pod, mapping, mappings

_HOST = ("hostNetwork", "hostPID", "hostIPC")
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_PROFILES = ("RuntimeDefault", "Localhost")
_ALLOWED = {"NET_BIND_SERVICE"}


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    for pod in objects.pods:
        yield from (f"{pod.where}: {key} is not `restricted`" for key in _HOST if pod.spec.get(key))
        for volume in mappings(pod.spec, "volumes"):
            for kind in sorted(set(volume) - _VOLUMES - {"name"}):
                yield f"{pod.where}: a volume of kind {kind} is not `restricted`"
        for container in pod.containers:
            for problem in _unconfined(pod, container):
                yield f"{pod.where}: container {container.get('name')}: {problem}"
        if pod.labels.get(PART_OF) == "cadre":
            yield from _cadre_pod(pod)


def _unconfined(pod: Pod, container: dict[str, Any]) -> Iterator[str]:
    own, whole = mapping(container, "securityContext"), mapping(pod.spec, "securityContext")
    both = {**whole, **own}
    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if "ALL" not in (mapping(own, "capabilities").get("drop") or []):
        yield "does not drop ALL capabilities"
    if added := set(mapping(own, "capabilities").get("add") or []) - _ALLOWED:
        yield f"adds the capability {', '.join(sorted(map(str, added)))}"
    if both.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if both.get("runAsUser") == 0:
        yield "runs as root"
    if mapping(both, "seccompProfile").get("type") not in _PROFILES:
        yield "seccompProfile.type is not RuntimeDefault or Localhost"
    if any("hostPort" in port for port in mappings(container, "ports")):
        yield "takes a port of its node"


def _cadre_pod(pod: Pod) -> Iterator[str]:
    if pod.spec.get("automountServiceAccountToken") is not False:
        yield f"{pod.where}: is given a token of the Kubernetes API, which no service uses"
    for container in pod.containers:
        where = f"{pod.where}: container {container.get('name')}"
        if mapping(container, "securityContext").get("readOnlyRootFilesystem") is not True:
            yield f"{where}: readOnlyRootFilesystem is not true"
        keys = [v.get("name") for v in mappings(container, "env") if mapping(v, "valueFrom", "secretKeyRef")]
        if pod.labels.get(COMPONENT) == "sandbox" and (keys or container.get("envFrom")):
            yield f"{where}: a sandbox is given secrets ({', '.join(map(str, keys)) or 'envFrom'})"
