"""One Kubernetes object as plain data: its metadata, its labels, and the selectors that find pods by them."""

from typing import Any

Manifest = dict[str, Any]

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"
AGENT = "cadre.dev/agent"

CADRE = {PART_OF: "cadre"}


def labels(name: str, component: str) -> dict[str, str]:
    """All labels of an object."""
    return {NAME: name, COMPONENT: component, **CADRE, MANAGED_BY: "cadre"}


def selector(name: str) -> dict[str, str]:
    """The labels that a Deployment selects its pods by. They never change: a selector cannot be edited."""
    return {NAME: name, **CADRE}


def metadata(namespace: str, name: str, component: str) -> dict[str, Any]:
    """The metadata of an object in a namespace, with all its labels."""
    return {"name": name, "namespace": namespace, "labels": labels(name, component)}


def manifest(api_version: str, kind: str, metadata: dict[str, Any], **body: Any) -> Manifest:
    """An object of the Kubernetes API."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
