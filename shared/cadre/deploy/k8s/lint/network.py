"""NetworkPolicies: those that hold for nobody, and pods that none holds for."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from cadre.deploy.k8s.labels import PART_OF
from cadre.deploy.k8s.lint.objects import Objects, key_of, mapping, mappings, namespace_of

_TYPES = {"Ingress": "ingress", "Egress": "egress"}


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    held: set[tuple[int, str]] = set()
    for policy in objects.of_kind("NetworkPolicy"):
        spec = mapping(policy, "spec")
        pods = objects.selected(namespace_of(policy), mapping(spec, "podSelector"))
        if objects.selects_nobody(policy, mapping(spec, "podSelector")):
            yield f"{key_of(policy)}: selects no pod"
        types = spec.get("policyTypes")
        types = types if isinstance(types, list) else ["Ingress"]
        held |= {(id(pod.owner), str(kind)) for pod in pods for kind in types}
        yield from (f"{key_of(policy)}: {problem}" for problem in _policy(spec, types))
    for pod in objects.pods:
        if pod.labels.get(PART_OF) == "cadre":
            for kind in _TYPES:
                if (id(pod.owner), kind) not in held:
                    yield f"{pod.where}: no NetworkPolicy holds for its {kind}: everything is allowed"


def _policy(spec: dict[str, Any], types: list[Any]) -> Iterator[str]:
    for kind in types:
        if kind not in _TYPES:
            yield f"policyTypes: {kind!r} must be Ingress or Egress"
    for kind, key in _TYPES.items():
        if key in spec and kind not in types:
            yield f"its rules for {key} count for nothing without {kind} in policyTypes"
        for rule in mappings(spec, key):
            for peer in (*mappings(rule, "to"), *mappings(rule, "from")):
                yield from _block(mapping(peer, "ipBlock"))


def _block(block: dict[str, Any]) -> Iterator[str]:
    if not block:
        return
    whole = _network(block.get("cidr"))
    if whole is None:
        yield f"ipBlock: {block.get('cidr')!r} is no network, as 10.0.0.0/8 is"
        return
    for text in block.get("except") or []:
        part = _network(text)
        if part is None or part.version != whole.version or not part.subnet_of(whole):  # type: ignore[arg-type]
            yield f"ipBlock: except {text!r} lies outside {whole}"


def _network(text: object) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(str(text))
    except ValueError:
        return None
