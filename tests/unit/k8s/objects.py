"""A set of manifests to look things up in, for tests of what is rendered."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from cadre.deploy.k8s.manifest import Manifest

_POD_OWNERS = ("Deployment", "StatefulSet", "Job")


class Pod(NamedTuple):
    """The template of a workload's pods."""

    owner: Manifest
    labels: dict[str, Any]
    spec: Manifest

    @property
    def containers(self) -> list[Manifest]:
        """Init containers and containers."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


class Objects:
    """Manifests, and what a cluster has next to them: `given` as `KIND/NAME`, where `*` stands for anything.

    A given NetworkPolicy, Service or budget selects pods that are not among the manifests.
    """

    def __init__(self, manifests: Sequence[Manifest], given: Iterable[str] = ()) -> None:
        self.all = manifests
        self._given = list(given)
        self._by_key = {(key_of(m), namespace_of(m)): m for m in manifests}
        templates = [(m, m["spec"]["template"]) for m in self.of_kind(*_POD_OWNERS)]
        self.pods = [Pod(m, t["metadata"].get("labels", {}), t["spec"]) for m, t in templates]

    def of_kind(self, *kinds: str) -> Iterator[Manifest]:
        """The manifests of these kinds."""
        return (m for m in self.all if m["kind"] in kinds)

    def find(self, key: str, namespace: str) -> Manifest | None:
        """The manifest `Kind/name`; None when it is not among these."""
        return self._by_key.get((key, namespace))

    def is_given(self, key: str) -> bool:
        """Return whether the cluster has this object, or what it selects."""
        return any(fnmatchcase(key, given) for given in self._given)

    def selected(self, by: Manifest, selector: Manifest) -> list[Pod]:
        """The pods in the namespace of the manifest that its selector matches."""
        mine = (pod for pod in self.pods if namespace_of(pod.owner) == namespace_of(by))
        return [pod for pod in mine if matches(selector, pod.labels)]


def matches(selector: Manifest, labels: dict[str, Any]) -> bool:
    """Return whether a LabelSelector matches the labels; an empty one matches everything."""
    equal = selector.get("matchLabels", {}).items() <= labels.items()
    return equal and all(_applies(rule, labels) for rule in selector.get("matchExpressions", []))


def _applies(rule: Manifest, labels: dict[str, Any]) -> bool:
    key, values = rule["key"], rule.get("values", [])
    match rule["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def key_of(manifest: Manifest) -> str:
    """The object as `Kind/name`."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def namespace_of(manifest: Manifest) -> str:
    """The namespace of an object; "" where it names none."""
    return str(manifest["metadata"].get("namespace", ""))
