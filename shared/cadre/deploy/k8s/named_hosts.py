"""Which hosts outside the cluster a service may reach, by their names: a NetworkPolicy knows addresses alone, Cilium's
own kind of policy follows what the name server answers."""

from typing import Any
from urllib.parse import urlsplit

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest, manifest, metadata, selector
from cadre.deploy.k8s.values import Values, Workload, is_address, port_of
from cadre.errors import SpecError

_NAME_SERVER = {
    "toEndpoints": [
        {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s:k8s-app": "kube-dns"}}
    ],
    # Cilium learns from the answers which addresses a name has.
    "toPorts": [{"ports": [{"port": "53", "protocol": "ANY"}], "rules": {"dns": [{"matchPattern": "*"}]}}],
}


def endpoint_urls(component: Component, values: Values) -> list[str]:
    """The URLs that the service is given: those of its models and in its variables."""
    own = values.workload(component.key).env.values()
    given = [*component.model_urls, *(text for text in own if text.startswith(("http://", "https://")))]
    return [values.model.url, *given] if values.model.url else given


def cilium_policy(component: Component, values: Values) -> Manifest:
    """The CiliumNetworkPolicy of a service that may leave the cluster, beside its NetworkPolicy, which says nothing of
    that then. Raises SpecError."""
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
        "egress": [_NAME_SERVER, *rules],
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
