"""Who may connect to whom: nobody, except as these policies allow. Policies add up."""

from collections.abc import Sequence
from typing import Any

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import CADRE, COMPONENT, INTERNET, Manifest, manifest, metadata, role_selector
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


def network_policies(components: Sequence[Component], values: Values) -> list[Manifest]:
    """The NetworkPolicies of a team."""
    roles = {component.role for component in components}
    found: list[Manifest] = []

    def add(name: str, pods: dict[str, Any], *types: str, **rules: list[dict[str, Any]]) -> None:
        selected = pods if "matchLabels" in pods else {"matchLabels": pods}
        spec = {"podSelector": selected, "policyTypes": [*types, *(key.title() for key in rules)], **rules}
        about = metadata(values.namespace, name, "network")
        found.append(manifest("networking.k8s.io/v1", "NetworkPolicy", about, spec=spec))

    add("cadre-default-deny", CADRE, "Ingress", "Egress")
    bus = _to(values.nats, values.namespace)
    add("cadre-bus", CADRE, egress=[bus] if is_address(values.nats.url) else [_NAME_SERVER, bus])
    if "gateway" in roles:
        add("cadre-gateway", role_selector("gateway"), ingress=[{"ports": _tcp(PORT)}])
    if "memory" in roles:
        add("cadre-memory", role_selector("memory"), egress=[_to(values.qdrant, values.namespace)])
    if values.telemetry.scraper:
        scraper = {"namespaceSelector": {"matchLabels": {_NAMESPACE: values.telemetry.scraper}}}
        add("cadre-scraper", CADRE, ingress=[{"from": [scraper], "ports": _tcp(PORT)}])
    if any(values.workload(component.key).internet for component in components):
        urls = [values.model.url, *(url for component in components for url in component.model_urls)]
        ports = sorted({443, *(port_of(url) for url in urls if url)})
        anywhere = {"to": _ANYWHERE, "ports": _tcp(*ports)}
        add("cadre-internet", {INTERNET: "true", **CADRE}, egress=[anywhere])
    if values.telemetry.url:
        # Not for sandboxes: whoever broke out of one could write there.
        unboxed = {"key": COMPONENT, "operator": "NotIn", "values": ["sandbox"]}
        senders = {"matchLabels": CADRE, "matchExpressions": [unboxed]}
        add("cadre-telemetry", senders, egress=[_to(values.telemetry, values.namespace)])
    return found


def _to(peer: Peer, own: str) -> dict[str, Any]:
    """A rule that lets through to the peer's pods, or to anywhere on its port where it has none here."""
    if not peer.pods:
        return {"to": _ANYWHERE, "ports": _tcp(peer.port)}
    target: dict[str, Any] = {"podSelector": {"matchLabels": peer.pods}}
    if peer.namespace and peer.namespace != own:
        target = {"namespaceSelector": {"matchLabels": {_NAMESPACE: peer.namespace}}, **target}
    return {"to": [target], "ports": _tcp(peer.port)}


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
