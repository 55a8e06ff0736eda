"""Write the components of a team as manifests, by the file that each belongs to, and the operator with its rights.

Replicas scale by lag: KEDA asks NATS for the pending messages of a service's durable consumers, and the gateway for
those of one of two revisions of an agent.
"""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from cadre.deploy.k8s.components import Component, object_name
from cadre.deploy.k8s.manifest import AGENT, Manifest, labels, manifest, merged, metadata, selector
from cadre.deploy.k8s.network_policies import cilium_policy, network_policy
from cadre.deploy.k8s.pod_spec import (
    PORT,
    config_map,
    confined_container,
    confined_pod,
    digest,
    moving,
    of_pod,
    plain_pod_spec,
    pod_spec,
)
from cadre.deploy.k8s.values import Scale, Storage, Values, Workload, check_names
from cadre.errors import SpecError
from cadre.protocol.topology import Topology

SHARED = "cadre"
"""File of the objects that belong to no single service."""

_LABEL_VALUE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?")

_ONE_A_MINUTE = {
    # One pod at a time, and not at the first quiet moment: what is taken away has to drain.
    "stabilizationWindowSeconds": 300,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}


def render(
    components: Sequence[Component], values: Values, only: str | None = None, beside: str = ""
) -> dict[str, list[Manifest]]:
    """Return manifests by file, without its suffix. `only` is the key of one component: objects that belong to no
    single one are left out then. With `beside` that component is a second revision of an agent, whose objects have this
    in their names; of the first, the objects that scale it next to the second are included.

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
    """Raise SpecError."""
    if first.role != "agent":
        raise SpecError(f"{first.key}: only agents have revisions that run side by side")
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
    """Return the files that several services read."""
    own = {component.id for component in components}
    shared = {p.files.name: p.files for p in components if p.files is not None and p.files.name not in own}
    return [config_map(files, metadata(values.namespace, name, "shared")) for name, files in shared.items()]


def _provision(components: Sequence[Component], values: Values) -> list[Manifest]:
    # A gateway has no queue, and works on the streams.
    is_needed = any(component.provides or component.role == "gateway" for component in components)
    return provision(components, values) if is_needed else []


def workload_manifests(component: Component, values: Values) -> list[Manifest]:
    """Return the manifests of a service: its Deployment first, then what that needs. Raises SpecError."""
    workload = values.workload(component.key)
    scale = _scale(component, values)
    _check(component, values, workload, scale)
    _check_model(component, values, workload)
    about = metadata(values.namespace, component.id, component.role)
    found = [_deployment(component, values, workload, scale), *_guards(component, values)]
    if component.files is not None and component.files.name == component.id:
        found.append(config_map(component.files, about))
    budget = {
        # Of one replica, too, a drained node may take the one: it drains.
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(component.id)},
    }
    found.append(manifest("policy/v1", "PodDisruptionBudget", about, spec=budget))
    found += scaling(component, values)
    if component.role == "memory" and values.embeds_memories:
        found.append(_claim(values.memory_service.storage, about))
    if component.role == "gateway":
        port = {"name": "http", "port": 80, "targetPort": "http"}
        found.append(manifest("v1", "Service", about, spec={"selector": selector(component.id), "ports": [port]}))
    return found


def _claim(storage: Storage, about: dict[str, Any]) -> Manifest:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.class_name:
        spec["storageClassName"] = storage.class_name
    return manifest("v1", "PersistentVolumeClaim", about, spec=spec)


def scaling(component: Component, values: Values) -> list[Manifest]:
    """Return what scales a service; nothing where its replicas are counted by hand."""
    scale = _scale(component, values)
    return [scaled_object(component, values, scale)] if scale is not None else []


def provision(components: Sequence[Component], values: Values) -> list[Manifest]:
    """Return the Job that creates streams and consumers before KEDA asks for their lag, and what it needs.

    A Job's template cannot be changed, so its name is derived from that.
    """
    options = [option for component in components for option in component.provides]
    for one in components:
        if one.at_rest and (scale := _scale(one, values)) is not None and scale.min == 0:
            options += ["--at-rest", one.at_rest]
    component = Component("provision", "", ["provision", *options], instance=values.instance or "cadre")
    workload = values.workload(component.key)
    about = metadata(values.namespace, component.id, component.role)
    pod = {"restartPolicy": "OnFailure", **plain_pod_spec(component, values, workload)}
    del pod["topologySpreadConstraints"], pod["affinity"]
    template = {"metadata": {"labels": about["labels"]}, "spec": merged(pod, workload.pod)}
    digest_of_template = sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
    job = manifest(
        "batch/v1",
        "Job",
        {**about, "name": f"{component.id}-{digest_of_template[:8]}"},
        spec={
            "backoffLimit": 10,
            # While it is kept, `apply` of what it was made for does not run it again: who goes back to a former
            # spec, whose card at rest another one has taken the place of, wants it run.
            "ttlSecondsAfterFinished": 300,
            "template": template,
        },
    )
    return [*_guards(component, values), job]


def _guards(component: Component, values: Values) -> list[Manifest]:
    """Return who its pods are to the cluster, and whom they may talk to."""
    about = metadata(values.namespace, component.id, component.role)
    account = manifest("v1", "ServiceAccount", about, automountServiceAccountToken=False)
    policies = [network_policy(component, values)]
    if values.cilium and values.workload(component.key).internet:
        policies.append(cilium_policy(component, values))
    return [account, *policies]


def _scale(component: Component, values: Values) -> Scale | None:
    return values.workload(component.key).scale if values.keda and component.consumers else None


def _check(component: Component, values: Values, workload: Workload, scale: Scale | None) -> None:
    if min(workload.drain, workload.linger, workload.failover, workload.replicas or 0) < 0:
        raise SpecError(f"workloads: {component.key}: drain, linger, failover and replicas must be at least 0")
    if scale is not None and not (0 <= scale.min <= scale.max and scale.max >= 1 and scale.lag >= 1):
        raise SpecError(f"workloads: {component.key}: scale: 0 <= min <= max, with max and lag at least 1")
    if scale is not None and scale.min == 0 and component.role == "tools":
        raise SpecError(
            f"workloads: {component.key}: scale: min must be at least 1: agents know a tool by those who serve it"
        )
    if component.role == "memory" and values.embeds_memories and (workload.replicas or 1) > 1:
        raise SpecError(
            "workloads: memory: replicas: an embedded index is one process's; several need memory.engine: qdrant"
        )
    if workload.hosts and not (values.cilium and workload.internet):
        raise SpecError(
            f"workloads: {component.key}: hosts: a NetworkPolicy knows addresses alone; set cilium: true in a cluster"
            " that has it, and internet: true here"
        )


def _check_model(component: Component, values: Values, workload: Workload) -> None:
    said = {"CADRE_MODEL_URL": ("url", values.model.url), "CADRE_MODEL": ("name", values.model.name)}
    for variable in component.asks_for:
        key, value = said[variable]
        if not (value or variable in workload.env or variable in workload.secrets):
            raise SpecError(
                f"{component.key}: has no model.{key}: write it in its file, or for all agents in the values, as with"
                f" --set model.{key}=…"
            )


def _deployment(component: Component, values: Values, workload: Workload, scale: Scale | None) -> Manifest:
    about = metadata(values.namespace, component.id, component.role)
    # The name that its spans, metrics and log lines have: the object's own is spelt as Kubernetes wants.
    if component.role == "agent" and _LABEL_VALUE.fullmatch(component.name):
        about["labels"][AGENT] = component.name
    of_pods: dict[str, Any] = {"labels": about["labels"]}
    if component.files is not None:
        # A change of its files rolls this service, and no other.
        of_pods["annotations"] = {"cadre.dev/spec-hash": digest(component.files)}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    # Two pods cannot have one index open.
    keeps = component.role == "memory" and values.embeds_memories
    spec: Manifest = {
        # Where something scales it, every `apply` would set the number back.
        **({"replicas": workload.replicas} if scale is None and workload.replicas is not None else {}),
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(component.id)},
        "strategy": {"type": "Recreate"} if keeps else rolling,
        "template": {"metadata": of_pods, "spec": pod_spec(component, values, workload)},
    }
    return manifest("apps/v1", "Deployment", about, spec=spec)


def scaled_object(component: Component, values: Values, scale: Scale) -> Manifest:
    """Return the ScaledObject of a component, with one trigger per consumer and shard, or one for a revision of an
    agent.

    A consumer's lag counts messages that wait or are at work, so a busy service is not scaled down. A revision keeps
    one replica: without any it would get no new runs.
    """
    least = max(1, scale.min) if component.is_shared else scale.min
    return manifest(
        "keda.sh/v1alpha1",
        "ScaledObject",
        metadata(values.namespace, component.id, component.role),
        spec={
            "scaleTargetRef": {"name": component.id},
            "pollingInterval": 10,
            "cooldownPeriod": 300,
            "minReplicaCount": least,
            "maxReplicaCount": scale.max,
            # When NATS or the gateway does not answer, as when a consumer is not there.
            "fallback": {
                "failureThreshold": 3,
                "replicas": max(1, least),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": _ONE_A_MINUTE}}},
            "triggers": _of_revision(component, values, scale)
            if component.is_shared
            else _of_queues(component, values, scale),
        },
    )


def _of_queues(component: Component, values: Values, scale: Scale) -> list[dict[str, Any]]:
    """The largest trigger decides; therefore each is given its shard's share of `lag`."""
    topology = Topology(values.nats.shards, values.nats.prefix)
    share = max(1, -(-scale.lag // topology.shards))
    return [
        {
            "type": "nats-jetstream",
            "metadata": {  # KEDA takes strings only
                "natsServerMonitoringEndpoint": values.monitor,
                "account": values.nats.account,
                "stream": topology.stream(shard),
                "consumer": consumer,
                "lagThreshold": str(share),
                "activationLagThreshold": "0",
            },
        }
        for consumer in component.consumers
        for shard in range(topology.shards)
    ]


def _of_revision(component: Component, values: Values, scale: Scale) -> list[dict[str, Any]]:
    """Return triggers that ask the gateway for this revision's share: the names of revisions' queues are not known
    beforehand."""
    host = f"{object_name(values.instance, 'gateway')}.{values.namespace}.svc.cluster.local"
    query = f"?{urlencode({'beside': component.beside})}" if component.beside else ""
    about = {
        "url": f"http://{host}/v1/agents/{component.name}/lag{query}",
        "valueLocation": "lag",
        "targetValue": str(scale.lag),
        "activationTargetValue": "0",
    }
    return [{"type": "metrics-api", "metadata": about}]


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
    # Autoscalers of objects that say no number, which count nothing before one is there.
    ("autoscaling", ["horizontalpodautoscalers"], ["list", "watch"]),
    ("cadre.dev", ["agents/scale", "toolservers/scale"], ["patch"]),
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
    found.append(_operator_deployment(values, about, namespaces, digest_of(settings)))
    return found


def digest_of(settings: str) -> str:
    """Return a checksum that changes with the operator's values."""
    return sha256(settings.encode()).hexdigest()[:16]


def _role(kind: str, about: dict[str, Any], rules: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> Manifest:
    written = [{"apiGroups": [group], "resources": [*of], "verbs": [*verbs]} for group, of, verbs in rules]
    return manifest("rbac.authorization.k8s.io/v1", kind, about, rules=written)


def _binding(role: str, kind: str, about: dict[str, Any], subject: dict[str, str]) -> Manifest:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": about["name"]}
    return manifest("rbac.authorization.k8s.io/v1", kind, about, roleRef=reference, subjects=[subject])


def _operator_deployment(values: Values, about: dict[str, Any], namespaces: Sequence[str], digest: str) -> Manifest:
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
        # Once its statuses are its own: who waits for it and then for an object must not meet those of before.
        readinessProbe={
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 2,
            "failureThreshold": 1,
        },
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
