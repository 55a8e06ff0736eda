"""Allow connections between services, and to hosts outside the cluster; everything else is denied.

A NetworkPolicy knows only addresses. Cilium's own kind of policy allows hosts by name, from the answers of the name
server.
"""

from typing import Any
from urllib.parse import urlsplit

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest, manifest, metadata, selector
from cadre.deploy.k8s.pod_spec import PORT
from cadre.deploy.k8s.values import Peer, Values, Workload, is_address, port_of
from cadre.errors import SpecError

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
    """Return the NetworkPolicy of a service: what it does not name is refused, in both directions."""
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
    # If there is a policy of Cilium's too, that one says what the name server may be asked.
    asks_no_names = all(map(is_address, values.nats.urls)) or (may_leave and values.cilium)
    rules = [] if asks_no_names else [_NAME_SERVER]
    rules.append(_to(values.nats, values.namespace))
    if component.role == "memory" and not values.embeds_memories:
        rules.append(_to(values.qdrant, values.namespace))
    if component.role == "gateway" and values.index.secret:
        rules.append(_to(values.index, values.namespace))
    if may_leave and not values.cilium:
        ports = {443, *map(port_of, endpoint_urls(component, values))}
        rules.append({"to": _ANYWHERE, "ports": _tcp(*sorted(ports))})
    # Not for sandboxes: code that broke out of one could write there.
    if values.telemetry.url and component.role != "sandbox":
        rules.append(_to(values.telemetry, values.namespace))
    return rules


def _to(peer: Peer, own: str) -> dict[str, Any]:
    """Return a rule that lets through to the peer's pods, or to anywhere on its ports where it has none here."""
    ports = _tcp(*sorted({*map(port_of, peer.urls)}))
    if not peer.pods:
        return {"to": _ANYWHERE, "ports": ports}
    target: dict[str, Any] = {"podSelector": {"matchLabels": peer.pods}}
    if peer.namespace and peer.namespace != own:
        target = {"namespaceSelector": {"matchLabels": {_NAMESPACE: peer.namespace}}, **target}
    return {"to": [target], "ports": ports}


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


_DNS_BY_CILIUM = {
    "toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s:k8s-app": "kube-dns"}}],
    # Cilium learns from the answers which addresses a name has.
    "toPorts": [{"ports": [{"port": "53", "protocol": "ANY"}], "rules": {"dns": [{"matchPattern": "*"}]}}],
}


def endpoint_urls(component: Component, values: Values) -> list[str]:
    """Return the URLs that the service is given: those of its models and in its variables."""
    own = values.workload(component.key).env.values()
    given = [*component.model_urls, *(text for text in own if text.startswith(("http://", "https://")))]
    return [values.model.url, *given] if values.model.url else given


def cilium_policy(component: Component, values: Values) -> Manifest:
    """Return the CiliumNetworkPolicy of a service that may leave the cluster, in addition to its NetworkPolicy, which
    then has no rule for that. Raises SpecError."""
    workload = values.workload(component.key)
    by_port: dict[int, set[str]] = {}
    for url in _urls(component, values, workload):
        by_port.setdefault(port_of(url), set()).add(url)
    if not by_port:
        raise SpecError(
            f"workloads: {component.key}: hosts: name those that it reaches, as in [api.example.com], or say"
            " internet: false"
        )
    rules = [rule for port, urls in sorted(by_port.items()) for rule in _to_hosts(port, sorted(urls))]
    spec = {
        "endpointSelector": {"matchLabels": selector(component.id)},
        "egress": [_DNS_BY_CILIUM, *rules],
    }
    about = metadata(values.namespace, component.id, component.role)
    return manifest("cilium.io/v2", "CiliumNetworkPolicy", about, spec=spec)


def _urls(component: Component, values: Values, workload: Workload) -> list[str]:
    own = endpoint_urls(component, values)
    if component.role != "agent" and values.model.url:
        own.remove(values.model.url)
    return own + [f"https://{host}" for host in workload.hosts]


def _to_hosts(port: int, urls: list[str]) -> list[dict[str, Any]]:
    ports = [{"ports": [{"port": str(port), "protocol": "TCP"}]}]
    addresses = [urlsplit(url).hostname or "" for url in urls if is_address(url)]
    names = [urlsplit(url).hostname or "" for url in urls if not is_address(url)]
    found: list[dict[str, Any]] = []
    if names:
        selectors = [{"matchPattern" if "*" in name else "matchName": name} for name in sorted(set(names))]
        found.append({"toFQDNs": selectors, "toPorts": ports})
    if addresses:
        blocks = [f"{address}/{128 if ':' in address else 32}" for address in sorted(set(addresses))]
        found.append({"toCIDR": blocks, "toPorts": ports})
    return found
