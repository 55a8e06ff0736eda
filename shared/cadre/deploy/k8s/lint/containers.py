"""A container: its image, ports, probes, variables, mounts and resources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cadre.deploy.k8s.lint.objects import Objects, Pod, kind_of, mapping, mappings

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|)")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_IMAGE = re.compile(
    r"([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_LONG_RUNNING = ("Deployment", "StatefulSet", "DaemonSet")


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    for pod in objects.pods:
        names = Counter(container.get("name") for container in pod.containers)
        yield from (f"{pod.where}: {n} containers are named {name!r}" for name, n in names.items() if n > 1)
        for container in pod.containers:
            where = f"{pod.where}: container {container.get('name')}"
            for problem in _container(container):
                yield f"{where}: {problem}"
        if kind_of(pod.owner) in _LONG_RUNNING:
            for container in mappings(pod.spec, "containers"):
                for probe in _PROBES[1:]:
                    if "ports" in container and probe not in container:
                        yield f"{pod.where}: container {container.get('name')}: has no {probe}"
        yield from _sizes(pod)


def _container(container: dict[str, Any]) -> Iterator[str]:
    image = str(container.get("image", ""))
    if not _IMAGE.fullmatch(image):
        yield f"image {image!r} is no name of an image"
    if container.get("imagePullPolicy", "Always") not in _PULL_POLICIES:
        yield f"imagePullPolicy must be one of {', '.join(_PULL_POLICIES)}"
    yield from _ports(container)
    yield from _duplicates("variable", [v.get("name") for v in mappings(container, "env")])
    yield from _duplicates("mount at", [m.get("mountPath") for m in mappings(container, "volumeMounts")])
    for variable in mappings(container, "env"):
        if not _VARIABLE.fullmatch(str(variable.get("name", ""))):
            yield f"{variable.get('name')!r} is no name of a variable"
        if "value" in variable and "valueFrom" in variable:
            yield f"variable {variable.get('name')} has a value and a source"
    yield from _resources(container)


def _ports(container: dict[str, Any]) -> Iterator[str]:
    ports = mappings(container, "ports")
    names = {port["name"] for port in ports if "name" in port}
    numbers = {port.get("containerPort") for port in ports}
    yield from _duplicates("port", [port.get("containerPort") for port in ports])
    for name in names:
        if not _PORT_NAME.fullmatch(str(name)):
            yield f"{name!r} is no name of a port: at most 15 small letters, digits and '-'"
    for probe in _PROBES:
        for action in ("httpGet", "tcpSocket"):
            target = mapping(container, probe, action)
            if target and target.get("port") not in names | numbers:
                yield f"{probe} asks the port {target.get('port')!r}, which it does not have"
        if (path := mapping(container, probe, "httpGet").get("path", "/")) and not str(path).startswith("/"):
            yield f"{probe}: the path {path!r} must begin with '/'"


def _resources(container: dict[str, Any]) -> Iterator[str]:
    resources = mapping(container, "resources")
    amounts: dict[tuple[str, str], Decimal] = {}
    for side in ("requests", "limits"):
        for what, text in mapping(resources, side).items():
            amount = _amount(text)
            if amount is None:
                yield f"resources.{side}.{what}: {text!r} is no quantity, as 250m or 512Mi are"
            else:
                amounts[side, what] = amount
    if "memory" not in mapping(resources, "limits"):
        yield "has no memory limit: it could take the whole node's"
    for (side, what), amount in amounts.items():
        if side == "requests" and amount > amounts.get(("limits", what), amount):
            yield f"resources: it requests more {what} than its limit"


def _sizes(pod: Pod) -> Iterator[str]:
    for volume in mappings(pod.spec, "volumes"):
        folder = mapping(volume, "emptyDir")
        if "sizeLimit" in folder and _amount(folder["sizeLimit"]) is None:
            yield f"{pod.where}: volume {volume.get('name')}: sizeLimit {folder['sizeLimit']!r} is no quantity"
        if folder.get("medium") == "Memory" and "sizeLimit" not in folder:
            yield f"{pod.where}: volume {volume.get('name')}: lies in memory and has no sizeLimit"


def _amount(text: object) -> Decimal | None:
    found = _QUANTITY.fullmatch(str(text))
    return Decimal(found[1]) * _FACTORS[found[2]] if found else None


def _duplicates(what: str, names: list[Any]) -> Iterator[str]:
    yield from (f"{what} {name} is there {n} times" for name, n in Counter(map(str, names)).items() if n > 1)
