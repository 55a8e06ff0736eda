"""All rules over a set of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cadre.deploy.k8s.lint import containers, names, network, pods, references, scaling, security
from cadre.deploy.k8s.lint.objects import Objects
from cadre.deploy.k8s.manifest import Manifest

_RULES = (
    names.problems,
    references.problems,
    pods.problems,
    containers.problems,
    security.problems,
    scaling.problems,
    network.problems,
)


def lint(manifests: Sequence[Manifest], given: Iterable[str] = ()) -> list[str]:
    """All problems, a line each, as `Kind/name: what`; [] when there are none.

    `given` names what the cluster has beside these manifests: `Secret/cadre-model`.
    """
    objects = Objects(manifests, given)
    return sorted({problem for rule in _RULES for problem in rule(objects)})
