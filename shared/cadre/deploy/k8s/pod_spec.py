"""Write the pod of a service: confined as the Pod Security Standard `restricted` asks, probed, with time to drain.

Its files come from ConfigMaps, mounted at their former places.
"""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from cadre.deploy.k8s.components import Component, Files
from cadre.deploy.k8s.manifest import CADRE, Manifest, manifest, merged, selector
from cadre.deploy.k8s.values import Values, Workload
from cadre.errors import SpecError

CLOSING_SECONDS = 10
"""Seconds that a service may take beyond its drain time."""

PORT = 8080
USER_ID = 10001
CREDENTIALS = "/var/run/secrets/cadre/nats"
"""Folder of a service's NATS credentials."""

CREDENTIALS_FILE = "nats.nk"
"""Key of the credentials in the Secret that `cadre auth init --secrets` writes."""

INDEX = "/index"
"""On the node's disk: the index of runs survives a container that starts again, and a new pod rebuilds it."""

TLS = "/var/run/secrets/cadre/nats-tls"
"""Folder of the certificates of NATS, by the names that cert-manager gives them."""

AGENT_FOLDER = "/etc/cadre"
"""Folder of an agent's files."""

PRICES_FILE = ".prices.yaml"
"""The price table among them."""

MEMORIES = "/data"
"""The volume of the memory service that keeps its index itself."""

_CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

_DEAD_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NODE = "kubernetes.io/hostname"

MAX_BYTES = 1_000_000
"""Bytes of files in a ConfigMap, which holds 1 MiB with its keys."""


def pod_spec(component: Component, values: Values, workload: Workload) -> dict[str, Any]:
    """Return the PodSpec of a service that runs until it is stopped. Raises SpecError."""
    served: dict[str, Any] = {
        "ports": [{"name": "http", "containerPort": PORT}],
        # Slow to start is not dead: the imports of a busy node, a bus that is not there yet.
        "startupProbe": _probe("/healthz", periodSeconds=2, timeoutSeconds=3, failureThreshold=60),
        "livenessProbe": _probe("/healthz", periodSeconds=10, timeoutSeconds=5, failureThreshold=6),
        # A gateway without NATS says so: out of its Service, it would say nothing.
        "readinessProbe": _probe(
            "/readyz/self" if component.role == "gateway" else "/readyz",
            periodSeconds=5,
            timeoutSeconds=3,
            failureThreshold=2,
        ),
    }
    if workload.linger:
        # A command, for `sleep` in its place is unknown to Kubernetes before 1.30.
        wait = ["python", "-c", f"import time; time.sleep({workload.linger})"]
        served["lifecycle"] = {"preStop": {"exec": {"command": wait}}}
    spec = {
        "terminationGracePeriodSeconds": workload.linger + workload.drain + CLOSING_SECONDS,
        **plain_pod_spec(component, values, workload, served),
    }
    return moving(merged(spec, workload.pod), workload.failover)


def moving(pod: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return the PodSpec of a pod that leaves a dead node after so many seconds, where Kubernetes waits 300: fences
    keep two replicas from doing one thing twice. One that owns a volume stays, for the node may have it still."""
    if any("persistentVolumeClaim" in volume for volume in pod.get("volumes") or ()):
        return pod
    said = pod.get("tolerations") or []
    known = {one.get("key") for one in said}
    return {
        **pod,
        "tolerations": [
            *said,
            *(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
                for key in _DEAD_NODE
                if key not in known and None not in known
            ),
        ],
    }


def plain_pod_spec(
    component: Component, values: Values, workload: Workload, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the PodSpec without what only a long-running service has: ports, probes, a time to drain."""
    volumes, mounts = _volumes(component, values)
    spread = {
        "maxSkew": 1,
        "topologyKey": _NODE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(component.id)},
    }
    # Those of one kind by the constraint, and by this those of all kinds: with one replica of each, too, a node that
    # dies takes a part of them along.
    others = {"topologyKey": _NODE, "labelSelector": {"matchLabels": CADRE}}
    affinity = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": others}]
        }
    }
    env = _environment(component, values, workload)
    container = confined_container(values.image, component.arguments, env=env, **(more or {}), volumeMounts=mounts)
    return confined_pod(
        component.id,
        topologySpreadConstraints=[spread],
        affinity=affinity,
        containers=[container],
        volumes=volumes,
    )


def confined_pod(account: str, **fields: Any) -> dict[str, Any]:
    """Return a PodSpec as the Pod Security Standard `restricted` asks, without a token of the Kubernetes API."""
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **fields,
    }


def confined_container(image: str, arguments: list[str], **fields: Any) -> dict[str, Any]:
    """Return the service's container."""
    return {"name": "main", "image": image, "args": arguments, **fields, "securityContext": _CONFINED}


_OF_POD = {
    "CADRE_INSTANCE": "metadata.name",
    "CADRE_POD_NAMESPACE": "metadata.namespace",
    "CADRE_NODE": "spec.nodeName",
}
"""Variables by the field of the pod that they have."""


def _environment(component: Component, values: Values, workload: Workload) -> list[dict[str, Any]]:
    plain = {
        "CADRE_NATS_URL": values.nats.url,
        "CADRE_PREFIX": values.nats.prefix,
        "CADRE_SHARDS": str(values.nats.shards),
        "CADRE_REPLICAS": str(values.nats.replicas),
    }
    if values.nats.credentials:
        plain["CADRE_NATS_CREDENTIALS"] = f"{CREDENTIALS}/{CREDENTIALS_FILE}"
    if values.nats.tls.secret:
        plain["CADRE_NATS_TLS_CA"] = f"{TLS}/ca.crt"
        if values.nats.tls.client:
            plain |= {"CADRE_NATS_TLS_CERT": f"{TLS}/tls.crt", "CADRE_NATS_TLS_KEY": f"{TLS}/tls.key"}
    if component.role != "provision":
        drain = str(workload.drain)
        plain |= {"CADRE_HOST": "0.0.0.0", "CADRE_PORT": str(PORT), "CADRE_DRAIN_SECONDS": drain}
        plain["CADRE_LOG_FORMAT"] = "json"
    secrets: dict[str, str] = {}
    if component.beside:
        plain["CADRE_BESIDE"] = component.beside
    if component.role == "agent":
        if values.prices:
            plain["CADRE_PRICES"] = f"{AGENT_FOLDER}/{PRICES_FILE}"
        plain |= _non_empty(CADRE_MODEL_URL=values.model.url, CADRE_MODEL=values.model.name)
        secrets |= {variable: f"{values.model.secret}/{variable}" for variable in component.key_variables}
    if component.role == "gateway":
        if values.index.secret:
            secrets["CADRE_INDEX_URL"] = f"{values.index.secret}/CADRE_INDEX_URL"
        else:
            plain["CADRE_INDEX_URL"] = f"sqlite://{INDEX}/runs.db"
        plain |= _non_empty(CADRE_GATEWAY_PATH=values.gateway.path)
        # It is reachable from outside its pod: callers authenticate, the first one with the administrator's key.
        plain["CADRE_AUTH"] = ways = workload.env.get("CADRE_AUTH", "keys")
        if "keys" in ways.split(","):
            secrets["CADRE_ADMIN_KEY"] = f"{values.gateway.secret}/CADRE_ADMIN_KEY"
        is_client = "CADRE_OIDC_CLIENT_ID" in workload.env and "CADRE_OIDC_CLIENT_SECRET" not in workload.env
        if "oidc" in ways.split(",") and is_client:
            secrets["CADRE_OIDC_CLIENT_SECRET"] = f"{values.gateway.secret}/CADRE_OIDC_CLIENT_SECRET"
    if component.role == "memory" and values.embeds_memories:
        plain |= {"CADRE_MEMORY_DIRECTORY": MEMORIES}
    elif component.role == "memory":
        plain |= {"QDRANT_URL": values.qdrant.url}
        secrets |= _non_empty(QDRANT_API_KEY=values.qdrant.secret and f"{values.qdrant.secret}/QDRANT_API_KEY")
    if values.telemetry.url and component.role not in ("sandbox", "provision"):
        plain |= {"OTEL_EXPORTER_OTLP_ENDPOINT": values.telemetry.url}
    plain |= workload.env
    plain["OTEL_RESOURCE_ATTRIBUTES"] = _whereabouts(component, plain.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    secrets |= workload.secrets
    return [
        # First, so that what follows may name them.
        *(of_pod(name, field) for name, field in _OF_POD.items()),
        *({"name": name, "value": value} for name, value in plain.items() if name not in secrets),
        *(_from_secret(component.key, name, reference) for name, reference in secrets.items()),
    ]


def of_pod(variable: str, field: str) -> dict[str, Any]:
    """Return a variable that has a field of its pod."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _whereabouts(component: Component, given: str) -> str:
    """Return the resource attributes of a pod's telemetry, those that are `given` last: they win.

    A tracer speaks for others: what it sends has the names of their pods, and no node.
    """
    known = ["service.namespace=$(CADRE_POD_NAMESPACE)", "k8s.namespace.name=$(CADRE_POD_NAMESPACE)"]
    if component.role != "tracer":
        known += ["k8s.pod.name=$(CADRE_INSTANCE)", "k8s.node.name=$(CADRE_NODE)"]
    return ",".join([*known, *filter(None, [given])])


def _non_empty(**variables: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value}


def _from_secret(workload: str, variable: str, reference: str) -> dict[str, Any]:
    secret, _, key = reference.partition("/")
    if not secret or not key:
        raise SpecError(f"workloads: {workload}: secrets.{variable}: {reference!r}: write SECRET/KEY")
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _volumes(component: Component, values: Values) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    if component.role == "gateway" and not values.index.secret:
        volumes.append({"name": "index", "emptyDir": {}})
        mounts.append({"name": "index", "mountPath": INDEX})
    if component.role == "memory" and values.embeds_memories:
        volumes.append({"name": "memories", "persistentVolumeClaim": {"claimName": component.id}})
        mounts.append({"name": "memories", "mountPath": MEMORIES})
    if component.files is not None:
        volumes.append({"name": "files", "configMap": {"name": component.files.name, "items": items(component.files)}})
        mounts.append({"name": "files", "mountPath": component.files.folder, "readOnly": True})
    if values.nats.credentials:
        name = values.nats.credentials.format(role=component.role, workload=component.user)
        volumes.append({"name": "nats", "secret": {"secretName": name, "defaultMode": 0o440}})
        mounts.append({"name": "nats", "mountPath": CREDENTIALS, "readOnly": True})
    if values.nats.tls.secret:
        keys = ["ca.crt", "tls.crt", "tls.key"] if values.nats.tls.client else ["ca.crt"]
        found = [{"key": key, "path": key} for key in keys]
        secret = {"secretName": values.nats.tls.secret, "defaultMode": 0o440, "items": found}
        volumes.append({"name": "nats-tls", "secret": secret})
        mounts.append({"name": "nats-tls", "mountPath": TLS, "readOnly": True})
    return volumes, mounts


def _probe(path: str, **times: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}, **times}


def config_map(files: Files, metadata: dict[str, Any]) -> Manifest:
    """Return the ConfigMap that holds the files. Raises SpecError when they are too large."""
    size = sum(len(content) for content in files.contents.values())
    if size > MAX_BYTES:
        raise SpecError(
            f"{files.name}: {size} bytes of files are more than a ConfigMap holds: put the folder into the image"
            " and say where by --set files=/teams/NAME"
        )
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for path, content in files.contents.items():
        try:
            text[_key(path)] = content.decode()
        except UnicodeDecodeError:
            binary[_key(path)] = b64encode(content).decode()
    body = {"data": text} | ({"binaryData": binary} if binary else {})
    return manifest("v1", "ConfigMap", metadata, **body)


def items(files: Files) -> list[dict[str, str]]:
    """Return the items of the volume, which map keys back to paths: a key cannot hold a slash."""
    return [{"key": _key(path), "path": path} for path in files.contents]


def digest(files: Files) -> str:
    """Return a checksum that changes with any name or content."""
    whole = sha256()
    for path, content in sorted(files.contents.items()):
        whole.update(f"{path}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:16]


def _key(path: str) -> str:
    key = path.replace("/", "__")
    if re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) and "__" not in path:
        return key
    return f"{re.sub(r'[^-._a-zA-Z0-9]', '-', key)[-200:]}-{sha256(path.encode()).hexdigest()[:8]}"
