"""Names that one manifest uses and another must have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cadre.deploy.k8s.lint.objects import Objects, Pod, key_of, mapping, mappings, namespace_of


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    for pod in objects.pods:
        account = pod.spec.get("serviceAccountName", "default")
        if account != "default" and not objects.has("ServiceAccount", pod.namespace, account):
            yield f"{pod.where}: there is no ServiceAccount {account!r}"
        for kind, name, keys, optional in (*_of_volumes(pod), *_of_variables(pod)):
            yield from _missing(objects, pod, kind, name, keys) if not optional else ()
    for service in objects.of_kind("Service"):
        yield from _service(objects, service)
    for budget in objects.of_kind("PodDisruptionBudget"):
        yield from _budget(objects, budget)


def _missing(objects: Objects, pod: Pod, kind: str, name: object, keys: list[str]) -> Iterator[str]:
    if not objects.has(kind, pod.namespace, name):
        yield f"{pod.where}: there is no {kind} {name!r}"
    elif (there := objects.find(kind, pod.namespace, name)) is not None:
        held = {*mapping(there, "data"), *mapping(there, "binaryData"), *mapping(there, "stringData")}
        for key in keys:
            if key not in held:
                yield f"{pod.where}: {kind} {name!r} has no key {key!r}"


Reference = tuple[str, object, list[str], bool]
"""Kind, name, keys in it, whether it may be missing."""


def _of_volumes(pod: Pod) -> Iterator[Reference]:
    for volume in mappings(pod.spec, "volumes"):
        yield from _of_source(volume, "secretName")
        for source in mappings(volume, "projected", "sources"):
            yield from _of_source(source, "name")


def _of_source(source: dict[str, Any], secret: str) -> Iterator[Reference]:
    """References in a volume source; `secret` is the key under which a Secret's name stands there."""
    for field, kind, key in (("configMap", "ConfigMap", "name"), ("secret", "Secret", secret)):
        if field in source:
            found = mapping(source, field)
            keys = [str(item.get("key")) for item in mappings(found, "items")]
            yield kind, found.get(key), keys, bool(found.get("optional"))


def _of_variables(pod: Pod) -> Iterator[Reference]:
    for container in pod.containers:
        for variable in mappings(container, "env"):
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if source := mapping(variable, "valueFrom", field):
                    yield kind, source.get("name"), [str(source.get("key"))], bool(source.get("optional"))
        for group in mappings(container, "envFrom"):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if source := mapping(group, field):
                    yield kind, source.get("name"), [], bool(source.get("optional"))


def _service(objects: Objects, service: dict[str, Any]) -> Iterator[str]:
    selector = mapping(service, "spec", "selector")
    if not selector:
        return
    pods = objects.selected(namespace_of(service), {"matchLabels": selector})
    if objects.selects_nobody(service, {"matchLabels": selector}):
        yield f"{key_of(service)}: selects no pod"
    for port in mappings(service, "spec", "ports"):
        target = port.get("targetPort", port.get("port"))
        for pod in pods:
            if target not in _ports(pod):
                yield f"{key_of(service)}: no container of {pod.where} has the port {target!r}"


def _budget(objects: Objects, budget: dict[str, Any]) -> Iterator[str]:
    spec = mapping(budget, "spec")
    if objects.selects_nobody(budget, mapping(spec, "selector")):
        yield f"{key_of(budget)}: selects no pod"
    if ("minAvailable" in spec) == ("maxUnavailable" in spec):
        yield f"{key_of(budget)}: say either minAvailable or maxUnavailable"
    if spec.get("maxUnavailable") in (0, "0%") or spec.get("minAvailable") == "100%":
        yield f"{key_of(budget)}: no pod may ever be moved, so no node can be drained"


def _ports(pod: Pod) -> set[object]:
    ports = [port for container in pod.containers for port in mappings(container, "ports")]
    return {port[key] for port in ports for key in ("name", "containerPort") if key in port}
