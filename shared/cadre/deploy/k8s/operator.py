"""The operator as manifests: what it may do in the cluster, and its one pod."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cadre.deploy.k8s.manifest import Manifest, manifest, metadata, selector
from cadre.deploy.k8s.pod_spec import PORT, confined_container, confined_pod, moving, of_pod
from cadre.deploy.k8s.values import Values, Workload

NAME = "cadre-operator"


_OBJECTS = ("agents", "teams", "toolservers", "models", "schedules", "triggers", "notices", "budgets")
_MADE = ["list", "create", "patch", "delete"]
_HEARD = ["watch", *_MADE]
_RULES: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
    ("cadre.dev", _OBJECTS, ["list", "watch"]),
    ("cadre.dev", [f"{one}/status" for one in _OBJECTS], ["patch"]),
    # Where a cluster asks for it of who makes an object's deletion wait for what it owns, as OpenShift does.
    ("cadre.dev", [f"{one}/finalizers" for one in _OBJECTS[:3]], ["update"]),
    ("", ["configmaps", "secrets"], ["get", *_HEARD]),
    ("", ["services"], ["get", *_MADE]),
    ("", ["serviceaccounts"], _MADE),
    ("", ["persistentvolumeclaims"], ["get", "create", "patch"]),
    ("", ["pods"], ["list", "watch", "patch"]),
    ("", ["events"], ["create"]),
    ("apps", ["deployments"], _HEARD),
    ("batch", ["jobs"], _HEARD),
    ("networking.k8s.io", ["networkpolicies"], _MADE),
    ("cilium.io", ["ciliumnetworkpolicies"], _MADE),
    ("policy", ["poddisruptionbudgets"], _MADE),
    ("keda.sh", ["scaledobjects"], _MADE),
)
"""By API group: resources and verbs, and not one more."""

_DEFINITIONS = ("apiextensions.k8s.io", ["customresourcedefinitions"], ["list", "watch"])
_NAMESPACES = ("", ["namespaces"], ["list", "watch"])
"""True if those that it acts on are there."""


def operator_manifests(values: Values, settings: str, namespaces: Sequence[str] = ()) -> list[Manifest]:
    """Return the operator in the namespace of the values. `settings` is the YAML of the operator's values.

    Where it acts on some namespaces alone, it has its rights in these.
    """
    about = metadata(values.namespace, NAME, "operator")
    # Of the whole cluster, where operators of several namespaces have theirs.
    cluster = {"name": f"{NAME}-{values.namespace}", "labels": about["labels"]}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": values.namespace}
    found = [
        manifest("v1", "ServiceAccount", about, automountServiceAccountToken=False),
        _role("ClusterRole", cluster, [_DEFINITIONS, *([_NAMESPACES] if namespaces else _RULES)]),
        _binding("ClusterRole", "ClusterRoleBinding", cluster, subject),
    ]
    for namespace in namespaces:
        there = metadata(namespace, NAME, "operator")
        found += [_role("Role", there, _RULES), _binding("Role", "RoleBinding", there, subject)]
    # Nothing but its kubelet asks it anything. Where it may connect to is open: the address of the API server, which
    # it has to reach behind that of its Service, is known to the cluster alone.
    silence = {"podSelector": {"matchLabels": selector(NAME)}, "policyTypes": ["Ingress"]}
    found.append(manifest("networking.k8s.io/v1", "NetworkPolicy", about, spec=silence))
    found.append(manifest("v1", "ConfigMap", about, data={"values.yaml": settings}))
    found.append(_deployment(values, about, namespaces, digest_of(settings)))
    return found


def digest_of(settings: str) -> str:
    """Return a checksum that changes with the operator's values."""
    return sha256(settings.encode()).hexdigest()[:16]


def _role(
    kind: str, about: dict[str, Any], rules: Sequence[tuple[str, Sequence[str], Sequence[str]]]
) -> Manifest:
    written = [{"apiGroups": [group], "resources": [*of], "verbs": [*verbs]} for group, of, verbs in rules]
    return manifest("rbac.authorization.k8s.io/v1", kind, about, rules=written)


def _binding(role: str, kind: str, about: dict[str, Any], subject: dict[str, str]) -> Manifest:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": about["name"]}
    return manifest("rbac.authorization.k8s.io/v1", kind, about, roleRef=reference, subjects=[subject])


def _deployment(values: Values, about: dict[str, Any], namespaces: Sequence[str], digest: str) -> Manifest:
    arguments = ["operator", "-f", "/etc/cadre/values.yaml"]
    for namespace in namespaces:
        arguments += ["--namespace", namespace]
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "failureThreshold": 6}
    container = confined_container(
        values.image,
        arguments,
        env=[
            {"name": "CADRE_HOST", "value": "0.0.0.0"},
            {"name": "CADRE_PORT", "value": str(PORT)},
            {"name": "CADRE_LOG_FORMAT", "value": "json"},
            of_pod("CADRE_INSTANCE", "metadata.name"),
        ],
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
    pod = moving(pod, Workload().failover)
    spec = {
        # Every replica applies the same, but one is enough.
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
