"""The operator as manifests: what it may do in the cluster, and its one pod."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cadre.deploy.k8s.manifest import Manifest, manifest, metadata, selector
from cadre.deploy.k8s.pod_spec import PORT, confined_container, confined_pod
from cadre.deploy.k8s.values import Values

NAME = "cadre-operator"


_OBJECTS = ("agents", "teams", "toolservers", "models", "schedules", "triggers", "notices", "budgets")
_ALL = ["get", "list", "watch", "create", "patch", "delete"]
_RULES: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
    ("cadre.dev", _OBJECTS, ["get", "list", "watch", "patch"]),
    ("cadre.dev", [f"{one}/status" for one in _OBJECTS], ["patch"]),
    ("", ["configmaps", "secrets", "serviceaccounts", "services"], _ALL),
    ("", ["persistentvolumeclaims"], ["get", "create", "patch"]),
    ("", ["pods"], ["list", "watch", "patch"]),
    ("", ["events"], ["create"]),
    ("apps", ["deployments"], _ALL),
    ("batch", ["jobs"], _ALL),
    ("networking.k8s.io", ["networkpolicies"], _ALL),
    ("cilium.io", ["ciliumnetworkpolicies"], _ALL),
    ("policy", ["poddisruptionbudgets"], _ALL),
    ("keda.sh", ["scaledobjects"], _ALL),
)
"""By API group: resources and verbs, and not one more."""

_TO_WATCH: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
    ("apiextensions.k8s.io", ["customresourcedefinitions"], ["get", "list", "watch"]),
    ("", ["namespaces"], ["get", "list", "watch"]),
)
"""What can only be asked of the whole cluster."""


def operator_manifests(values: Values, settings: str, namespaces: Sequence[str] = ()) -> list[Manifest]:
    """The operator in the namespace of the values. `settings` is the YAML of its own values.

    Where it acts on some namespaces alone, it has its rights in these.
    """
    about = metadata(values.namespace, NAME, "operator")
    cluster = {"name": NAME, "labels": about["labels"]}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": values.namespace}
    found = [
        manifest("v1", "ServiceAccount", about, automountServiceAccountToken=False),
        _role("ClusterRole", cluster, [*_TO_WATCH, *([] if namespaces else _RULES)]),
        _binding("ClusterRole", "ClusterRoleBinding", cluster, subject),
    ]
    for namespace in namespaces:
        there = metadata(namespace, NAME, "operator")
        found += [_role("Role", there, _RULES), _binding("Role", "RoleBinding", there, subject)]
    found.append(manifest("v1", "ConfigMap", about, data={"values.yaml": settings}))
    found.append(_deployment(values, about, namespaces, digest_of(settings)))
    return found


def digest_of(settings: str) -> str:
    """A checksum that changes with the operator's values."""
    return sha256(settings.encode()).hexdigest()[:16]


def _role(
    kind: str, about: dict[str, Any], rules: Sequence[tuple[str, Sequence[str], Sequence[str]]]
) -> Manifest:
    written = [{"apiGroups": [group], "resources": [*of], "verbs": [*verbs]} for group, of, verbs in rules]
    return manifest("rbac.authorization.k8s.io/v1", kind, about, rules=written)


def _binding(role: str, kind: str, about: dict[str, Any], subject: dict[str, str]) -> Manifest:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME}
    return manifest("rbac.authorization.k8s.io/v1", kind, about, roleRef=reference, subjects=[subject])


def _deployment(values: Values, about: dict[str, Any], namespaces: Sequence[str], digest: str) -> Manifest:
    arguments = ["operator", "-f", "/etc/cadre/values.yaml"]
    for namespace in namespaces:
        arguments += ["--namespace", namespace]
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "failureThreshold": 6}
    container = confined_container(
        values.image,
        arguments,
        env=[{"name": "CADRE_HOST", "value": "0.0.0.0"}, {"name": "CADRE_PORT", "value": str(PORT)}],
        ports=[{"name": "http", "containerPort": PORT}],
        startupProbe={**probe, "periodSeconds": 2, "failureThreshold": 60},
        livenessProbe=probe,
        readinessProbe=probe,
        resources={"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
        volumeMounts=[
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "values", "mountPath": "/etc/cadre", "readOnly": True},
        ],
    )
    volumes = [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "values", "configMap": {"name": NAME}},
    ]
    pod = confined_pod(NAME, automountServiceAccountToken=True, containers=[container], volumes=volumes)
    spec = {
        # What it applies is the same whoever applies it, but one is enough.
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector(NAME)},
        "template": {
            # It reads its values once.
            "metadata": {"labels": about["labels"], "annotations": {"cadre.dev/values-hash": digest}},
            "spec": pod,
        },
    }
    return manifest("apps/v1", "Deployment", about, spec=spec)
