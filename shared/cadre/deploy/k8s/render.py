"""A team's components as manifests, by the file that each belongs to."""

from collections.abc import Sequence

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.config_maps import config_map
from cadre.deploy.k8s.manifest import Manifest, labels, manifest, metadata
from cadre.deploy.k8s.values import Values, check_names
from cadre.deploy.k8s.workloads import provision, scaling, workload_manifests
from cadre.errors import SpecError

SHARED = "cadre"
"""File of the objects that belong to no single service."""


def render(
    components: Sequence[Component], values: Values, only: str | None = None, beside: str = ""
) -> dict[str, list[Manifest]]:
    """Manifests by file, without its suffix. `only` is the key of one component: what belongs to no single one is
    left out then. With `beside` that is a second revision of an agent, whose objects have this in their names; and of
    the first, what scales it beside the second.

    Raises SpecError for values that fit no manifest, and names no component has.
    """
    keys = [component.key for component in components]
    check_names(values, [*keys, "provision"])
    if only is None:
        return {
            SHARED: _shared(components, values),
            **{component.id: workload_manifests(component, values) for component in components},
        }
    chosen = [component for component in components if component.key == only]
    if not chosen:
        raise SpecError(f"there is no {only!r} in this team; there are: {', '.join(keys)}")
    first: dict[str, list[Manifest]] = {}
    if beside:
        # What scales the first changes with it: it counted what is the second's, and not what is passed on to it.
        scaled = scaling(chosen[0]._replace(is_shared=True), values)
        first = {chosen[0].id: scaled} if scaled else {}
        chosen = [_second(chosen[0], beside, components)]
    return first | {
        component.id: [
            *_shared_files(chosen, values),
            *_provision(chosen, values),
            *workload_manifests(component, values),
        ]
        for component in chosen
    }


def _second(first: Component, beside: str, components: Sequence[Component]) -> Component:
    """Raises SpecError."""
    if first.role != "agent":
        raise SpecError(f"{first.key}: agents alone have revisions that run beside each other")
    # Its queues are there: the first revision has them.
    second = first.second(f"{first.name}-{beside}")
    if any(second.id == one.id for one in components):
        raise SpecError(f"the team has a {second.id} already: choose another name than {beside!r}")
    return second


def _shared(components: Sequence[Component], values: Values) -> list[Manifest]:
    marks = labels(values.namespace, "namespace") | {"pod-security.kubernetes.io/enforce": "restricted"}
    return [
        manifest("v1", "Namespace", {"name": values.namespace, "labels": marks}),
        *_shared_files(components, values),
        *_provision(components, values),
    ]


def _shared_files(components: Sequence[Component], values: Values) -> list[Manifest]:
    """The files that several services read."""
    own = {component.id for component in components}
    shared = {p.files.name: p.files for p in components if p.files is not None and p.files.name not in own}
    return [config_map(files, metadata(values.namespace, name, "shared")) for name, files in shared.items()]


def _provision(components: Sequence[Component], values: Values) -> list[Manifest]:
    return provision(components, values) if any(component.provides for component in components) else []
