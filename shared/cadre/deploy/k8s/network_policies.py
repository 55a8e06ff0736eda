"""Who may connect to whom: nobody, except as a service's own policy allows."""

from typing import Any

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest, manifest, metadata, selector
from cadre.deploy.k8s.named_hosts import endpoint_urls
from cadre.deploy.k8s.pod_spec import PORT
from cadre.deploy.k8s.values import Peer, Values, is_address, port_of

_NAMESPACE = "kubernetes.io/metadata.name"
_ANYWHERE = [
    # Clouds answer questions about their machines, credentials included, at a link-local address.
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::/32"]}},
]
_NAME_SERVER = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {_NAMESPACE: "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}


def network_policy(component: Component, values: Values) -> Manifest:
    """The NetworkPolicy of a service: what it does not name is refused, in both directions."""
    about = metadata(values.namespace, component.id, component.role)
    spec = {
        "podSelector": {"matchLabels": selector(component.id)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": _ingress(component, values),
        "egress": _egress(component, values),
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", about, spec=spec)


def _ingress(component: Component, values: Values) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    if component.role == "gateway":
        rules.append({"ports": _tcp(PORT)})
    if values.telemetry.scraper and component.role != "provision":
        scraper = {"namespaceSelector": {"matchLabels": {_NAMESPACE: values.telemetry.scraper}}}
        rules.append({"from": [scraper], "ports": _tcp(PORT)})
    return rules


def _egress(component: Component, values: Values) -> list[dict[str, Any]]:
    may_leave = values.workload(component.key).internet
    # Beside a policy of Cilium's, that one says what the name server may be asked.
    asks_no_names = all(map(is_address, values.nats.urls)) or (may_leave and values.cilium)
    rules = [] if asks_no_names else [_NAME_SERVER]
    rules.append(_to(values.nats, values.namespace))
    if component.role == "memory":
        rules.append(_to(values.qdrant, values.namespace))
    if component.role == "gateway" and values.index.secret:
        rules.append(_to(values.index, values.namespace))
    if may_leave and not values.cilium:
        ports = {443, *map(port_of, endpoint_urls(component, values))}
        rules.append({"to": _ANYWHERE, "ports": _tcp(*sorted(ports))})
    # Not for sandboxes: whoever broke out of one could write there.
    if values.telemetry.url and component.role != "sandbox":
        rules.append(_to(values.telemetry, values.namespace))
    return rules


def _to(peer: Peer, own: str) -> dict[str, Any]:
    """A rule that lets through to the peer's pods, or to anywhere on its ports where it has none here."""
    ports = _tcp(*sorted({*map(port_of, peer.urls)}))
    if not peer.pods:
        return {"to": _ANYWHERE, "ports": ports}
    target: dict[str, Any] = {"podSelector": {"matchLabels": peer.pods}}
    if peer.namespace and peer.namespace != own:
        target = {"namespaceSelector": {"matchLabels": {_NAMESPACE: peer.namespace}}, **target}
    return {"to": [target], "ports": ports}


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
