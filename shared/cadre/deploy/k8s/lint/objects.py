"""A set of manifests to look things up in. What is malformed counts as absent: schemas report it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from cadre.deploy.k8s.manifest import Manifest

_POD_OWNERS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


class Pod(NamedTuple):
    """The template of a workload's pods."""

    owner: Manifest
    labels: dict[str, Any]
    spec: Manifest

    @property
    def where(self) -> str:
        """The owner as `Kind/name`."""
        return key_of(self.owner)

    @property
    def namespace(self) -> str:
        return namespace_of(self.owner)

    @property
    def containers(self) -> list[Manifest]:
        """Init containers and containers."""
        return [*mappings(self.spec, "initContainers"), *mappings(self.spec, "containers")]


class Objects:
    """Manifests, and what is given beside them.

    `given` names, as `KIND/NAME`, objects that exist in any namespace, and manifests that select pods which are not
    among these; `*` in a name stands for anything.
    """

    def __init__(self, manifests: Sequence[Manifest], given: Iterable[str] = ()) -> None:
        self.all = list(manifests)
        self._given = list(given)
        self._found = {(kind_of(m), namespace_of(m), name_of(m)): m for m in manifests}
        self.pods = [
            Pod(m, _template_labels(m), mapping(m, "spec", "template", "spec")) for m in _owners(manifests)
        ]

    def of_kind(self, *kinds: str) -> Iterator[Manifest]:
        """The manifests of these kinds."""
        return (m for m in self.all if kind_of(m) in kinds)

    def find(self, kind: str, namespace: str, name: object) -> Manifest | None:
        """The manifest of that kind and name; None when it is not among these."""
        return self._found.get((kind, namespace, str(name)))

    def has(self, kind: str, namespace: str, name: object) -> bool:
        """Whether the object is among the manifests or given."""
        return self.find(kind, namespace, name) is not None or self._is_given(f"{kind}/{name}")

    def selects_nobody(self, manifest: Manifest, selector: Manifest) -> bool:
        """Whether the selector of a manifest finds no pod, and no given pods are known to match it."""
        return not self._is_given(key_of(manifest)) and not self.selected(namespace_of(manifest), selector)

    def selected(self, namespace: str, selector: Manifest) -> list[Pod]:
        """The pods in the namespace that the selector matches."""
        return [pod for pod in self.pods if pod.namespace == namespace and matches(selector, pod.labels)]

    def _is_given(self, called: str) -> bool:
        return any(fnmatchcase(called, given) for given in self._given)


def matches(selector: Manifest, labels: dict[str, Any]) -> bool:
    """Whether a LabelSelector matches the labels; an empty one matches everything."""
    equal = all(labels.get(key) == value for key, value in mapping(selector, "matchLabels").items())
    return equal and all(_holds(rule, labels) for rule in mappings(selector, "matchExpressions"))


def _holds(rule: Manifest, labels: dict[str, Any]) -> bool:
    key, values = rule.get("key"), rule.get("values") or []
    match rule.get("operator"):
        case "In":
            return labels.get(str(key)) in values
        case "NotIn":
            return labels.get(str(key)) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def mapping(manifest: Any, *path: str) -> dict[str, Any]:
    """The mapping at the path; {} where it is missing or something else."""
    for key in path:
        manifest = manifest.get(key) if isinstance(manifest, dict) else None
    return manifest if isinstance(manifest, dict) else {}


def mappings(manifest: Any, *path: str) -> list[dict[str, Any]]:
    """The mappings in the list at the path; [] where there is no list."""
    found = mapping(manifest, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def kind_of(manifest: Manifest) -> str:
    return str(manifest.get("kind"))


def name_of(manifest: Manifest) -> str:
    return str(mapping(manifest, "metadata").get("name"))


def namespace_of(manifest: Manifest) -> str:
    return str(mapping(manifest, "metadata").get("namespace") or "")


def key_of(manifest: Manifest) -> str:
    """The object as `Kind/name`."""
    return f"{kind_of(manifest)}/{name_of(manifest)}"


def _owners(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    return (m for m in manifests if kind_of(m) in _POD_OWNERS)


def _template_labels(owner: Manifest) -> dict[str, Any]:
    return mapping(owner, "spec", "template", "metadata", "labels")
