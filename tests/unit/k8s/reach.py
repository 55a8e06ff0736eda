"""Allowed connections between pods, by the NetworkPolicies of a set of manifests."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from cadre.deploy.k8s.manifest import Manifest
from unit.k8s.objects import Objects, matches, namespace_of

_NAMESPACE = "kubernetes.io/metadata.name"


class End(NamedTuple):
    """One end of a connection: a pod, or an address outside the cluster."""

    labels: dict[str, str] | None
    namespace: str = ""
    address: str = ""
    """Of a pod, too, where it is known: blocks of addresses may cover pods."""


def may_connect(manifests: Sequence[Manifest], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """As Kubernetes defines it: the source's egress and the target's ingress must both let it through.

    An end for which no policy holds lets everything through.
    """
    return _lets(manifests, source, target, "Egress", (port, protocol)) and _lets(
        manifests, target, source, "Ingress", (port, protocol)
    )


def _lets(manifests: Sequence[Manifest], own: End, other: End, direction: str, through: tuple[int, str]) -> bool:
    if own.labels is None:
        return True  # no pod, no policy
    holding = [
        policy["spec"]
        for policy in Objects(manifests).of_kind("NetworkPolicy")
        if namespace_of(policy) == own.namespace
        and matches(policy["spec"]["podSelector"], own.labels)
        and direction in policy["spec"]["policyTypes"]
    ]
    key, side = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    rules = [rule for spec in holding for rule in spec.get(key, [])]
    return not holding or any(_port(rule, through) and _peer(rule, side, own, other) for rule in rules)


def _port(rule: dict[str, Any], through: tuple[int, str]) -> bool:
    ports = rule.get("ports", [])
    return not ports or any(p.get("protocol", "TCP") == through[1] and _covers(p, through[0]) for p in ports)


def _covers(given: dict[str, Any], port: int) -> bool:
    """A port's name may stand for any number: anyone who asks wants to hear of what might be open."""
    first = given.get("port")
    return not isinstance(first, int) or first <= port <= given.get("endPort", first)


def _peer(rule: dict[str, Any], side: str, own: End, other: End) -> bool:
    peers = rule.get(side, [])
    return not peers or any(_is(peer, own, other) for peer in peers)


def _is(peer: dict[str, Any], own: End, other: End) -> bool:
    if block := peer.get("ipBlock"):
        return bool(other.address) and _within(other.address, block)
    if other.labels is None:
        return False
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {_NAMESPACE: other.namespace}):
            return False
    elif other.namespace != own.namespace:
        return False
    return matches(peer.get("podSelector", {}), other.labels)


def _within(address: str, block: dict[str, Any]) -> bool:
    found = ip_address(address)
    return found in ip_network(block["cidr"]) and not any(
        found in ip_network(part) for part in block.get("except") or []
    )
