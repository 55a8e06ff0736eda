"""Write one Kubernetes object as plain data: its metadata, its labels, and the selectors that find its pods.

Values that a person overrides are merged into it.
"""

from typing import Any

Manifest = dict[str, Any]

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"
AGENT = "cadre.dev/agent"

CADRE = {PART_OF: "cadre"}

_IDENTITIES = ("name", "mountPath")
"""Keys that tell the items of a list apart: of containers, volumes and variables; of mounts."""


def labels(name: str, component: str) -> dict[str, str]:
    """Return all labels of an object."""
    return {NAME: name, COMPONENT: component, **CADRE, MANAGED_BY: "cadre"}


def selector(name: str) -> dict[str, str]:
    """Return the labels that a Deployment selects its pods by. They never change: a selector cannot be edited."""
    return {NAME: name, **CADRE}


def metadata(namespace: str, name: str, component: str) -> dict[str, Any]:
    """Return the metadata of an object in a namespace, with all its labels."""
    return {"name": name, "namespace": namespace, "labels": labels(name, component)}


def manifest(api_version: str, kind: str, metadata: dict[str, Any], **body: Any) -> Manifest:
    """Return an object of the Kubernetes API."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def merged(base: Any, over: Any, *, nulls: bool = False) -> Any:
    """`over` on `base`: mappings key by key, lists of named items item by item, all else replaced.

    None takes a key away; with `nulls` it stays, for both will lie over something that has the key. Neither argument is
    changed.
    """
    if isinstance(over, dict):
        below = base if isinstance(base, dict) else {}
        both = {key: merged(below.get(key), value, nulls=nulls) for key, value in over.items()}
        return {key: value for key, value in {**below, **both}.items() if nulls or value is not None}
    if isinstance(base, list) and isinstance(over, list) and (key := _identity(base, over)):
        items = {item[key]: item for item in base}
        for item in over:
            items[item[key]] = merged(items.get(item[key]), item, nulls=nulls)
        return list(items.values())
    return over


def _identity(base: list[Any], over: list[Any]) -> str | None:
    """Return the key that all items have; the mount path first, for a mount's `name` is its volume's."""
    for key in reversed(_IDENTITIES):
        if base and over and all(isinstance(item, dict) and key in item for item in (*base, *over)):
            return key
    return None
