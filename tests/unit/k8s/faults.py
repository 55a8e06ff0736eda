"""Finds faults in manifests that their schema does not see: dangling names, wrong selectors, pods without walls."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from cadre.deploy.k8s.manifest import COMPONENT, PART_OF, Manifest
from unit.k8s.objects import Objects, Pod, key_of, matches, namespace_of

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_QUANTITY = re.compile(r"([0-9.]+)(m|Ki|Mi|Gi|)")
_FACTORS = {"m": 0.001, "": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
_TRIGGER_KEYS = {
    "nats-jetstream": {"natsServerMonitoringEndpoint", "stream", "consumer", "lagThreshold", "account"},
    "metrics-api": {"url", "valueLocation", "targetValue"},
}
_TRIGGER_OPTIONS = {"activationLagThreshold", "activationTargetValue"}
_PROVISION_OPTIONS = {"--agent": "agent-", "--tool": "tool-", "--pool": "code-"}

Checks = Iterable[tuple[object, str]]
"""True if something is wrong, and how that reads."""


def faults(manifests: Sequence[Manifest], given: Iterable[str] = ()) -> list[str]:
    """All faults as `Kind/name: what`; `given` is what the cluster has next to these, as Objects says."""
    objects = Objects(manifests, given)
    found = [
        *(f"{key_of(m)}: {fault}" for m in manifests for fault in _wrong(_names(objects, m))),
        *(f"{key_of(p.owner)}: {fault}" for p in objects.pods for fault in _pod(objects, p)),
    ]
    for kind, rule in _RULES.items():
        found += [f"{key_of(m)}: {fault}" for m in objects.of_kind(kind) for fault in _wrong(rule(objects, m))]
    return sorted(set(found))


def _wrong(checks: Checks) -> Iterator[str]:
    return (fault for wrong, fault in checks if wrong)


def _names(objects: Objects, one: Manifest) -> Checks:
    twins = [m for m in objects.all if (key_of(m), namespace_of(m)) == (key_of(one), namespace_of(one))]
    yield len(twins) > 1, f"is there {len(twins)} times"
    yield not _NAME.fullmatch(one["metadata"]["name"]), "a name has small letters, digits and '-' only"
    template = one.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
    for value in (*one["metadata"].get("labels", {}).values(), *template.values()):
        yield not _LABEL_VALUE.fullmatch(value), f"{value!r} is no label's value"
    for key in one.get("data", {}):
        yield not _DATA_KEY.fullmatch(key), f"{key!r} is no key for data"


def _pod(objects: Objects, pod: Pod) -> Iterator[str]:
    yield from _wrong(_template(pod))
    yield from _wrong(_volumes(pod))
    yield from _wrong(_references(objects, pod))
    for container in pod.containers:
        for checks in (_container(container), _limits(container), _walls(pod, container)):
            yield from _wrong(checks)


def _template(pod: Pod) -> Checks:
    kind, spec = pod.owner["kind"], pod.owner["spec"]
    yield (
        kind != "Job" and not matches(spec["selector"], pod.labels),
        "its selector does not match the labels of its template",
    )
    restarts = ("OnFailure", "Never") if kind == "Job" else ("Always",)
    yield pod.spec.get("restartPolicy", "Always") not in restarts, f"restartPolicy must be in {restarts}"
    strategy = spec.get("strategy", {"type": "RollingUpdate"})
    yield strategy["type"] not in ("RollingUpdate", "Recreate"), f"strategy.type {strategy['type']!r}"
    yield (
        strategy["type"] == "Recreate" and "rollingUpdate" in strategy,
        "rollingUpdate goes with RollingUpdate",
    )
    grace = pod.spec.get("terminationGracePeriodSeconds", 30)
    for variable in (v for c in pod.containers for v in c.get("env", []) if v["name"] == "CADRE_DRAIN_SECONDS"):
        drain = float(variable["value"])
        yield drain >= grace, f"may drain for {drain:g} s, but is killed after {grace} s"
    for spread in pod.spec.get("topologySpreadConstraints", []):
        yield not matches(spread["labelSelector"], pod.labels), "topologySpreadConstraints select other pods"
        known = ("ScheduleAnyway", "DoNotSchedule")
        yield spread["whenUnsatisfiable"] not in known, f"whenUnsatisfiable must be in {known}"
    yield from _twice("containers", [c["name"] for c in pod.containers])
    yield (
        pod.labels.get(PART_OF) == "cadre" and pod.spec.get("automountServiceAccountToken") is not False,
        "is given a token of the Kubernetes API",
    )


def _volumes(pod: Pod) -> Checks:
    volumes = pod.spec.get("volumes", [])
    names = [v["name"] for v in volumes]
    names += [c["metadata"]["name"] for c in pod.owner["spec"].get("volumeClaimTemplates", [])]
    mounted = {m["name"] for c in pod.containers for m in c.get("volumeMounts", [])}
    yield from _twice("volumes", names)
    yield mounted - set(names), f"mounts {mounted - set(names)}, no volume of it"
    yield set(names) - mounted, f"{set(names) - mounted} is mounted nowhere"
    for volume in volumes:
        kinds = set(volume) - {"name"}
        yield kinds - _RESTRICTED_VOLUMES, f"a volume of kind {kinds} is not `restricted`"
        folder = volume.get("emptyDir", {})
        yield folder.get("medium") == "Memory" and "sizeLimit" not in folder, "has no sizeLimit"


def _references(objects: Objects, pod: Pod) -> Checks:
    for key, wanted in _referenced(pod):
        there = objects.find(key, namespace_of(pod.owner))
        held = {**there.get("data", {}), **there.get("stringData", {})} if there else {}
        missing = not there and not objects.is_given(key) and key != "ServiceAccount/default"
        yield missing, f"there is no {key}"
        for one in wanted if there else ():
            yield one not in held, f"{key} has no key {one!r}"


def _referenced(pod: Pod) -> Iterator[tuple[str, list[str]]]:
    """Every object that the pod names, as `Kind/name`, and the keys in it."""
    yield f"ServiceAccount/{pod.spec.get('serviceAccountName', 'default')}", []
    for volume in pod.spec.get("volumes", []):
        for source in (volume, *volume.get("projected", {}).get("sources", [])):
            for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
                if own := source.get(field):
                    yield (
                        f"{kind}/{own.get('name', own.get('secretName'))}",
                        [i["key"] for i in own.get("items", [])],
                    )
    for container in pod.containers:
        for variable in container.get("env", []):
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if own := variable.get("valueFrom", {}).get(field):
                    yield f"{kind}/{own['name']}", [own["key"]]
        for group in container.get("envFrom", []):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if own := group.get(field):
                    yield f"{kind}/{own['name']}", []


def _container(container: dict[str, Any]) -> Checks:
    variables, ports = container.get("env", []), container.get("ports", [])
    yield not _IMAGE.fullmatch(container["image"]), f"{container['image']!r} is no name of an image"
    policy = container.get("imagePullPolicy", "Always")
    yield policy not in ("Always", "IfNotPresent", "Never"), f"imagePullPolicy {policy!r}"
    yield from _twice("variables", [v["name"] for v in variables])
    yield from _twice("mounts", [m["mountPath"] for m in container.get("volumeMounts", [])])
    yield from _twice("ports", [p["containerPort"] for p in ports])
    yield any("value" in v and "valueFrom" in v for v in variables), "a variable has a value and a source"
    for port in ports:
        yield not _PORT_NAME.fullmatch(port["name"]), f"{port['name']!r} is no name of a port"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield ports and probe != "startupProbe" and probe not in container, f"has no {probe}"
        request = container.get(probe, {}).get("httpGet")
        if request:
            open_ports = {value for p in ports for value in (p["name"], p["containerPort"])}
            yield request["port"] not in open_ports, f"{probe} asks the port {request['port']!r}"
            yield not request["path"].startswith("/"), f"{probe}: the path must begin with '/'"


def _limits(container: dict[str, Any]) -> Checks:
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    yield "memory" not in limits, "has no memory limit"
    for amounts in resources.values():
        for text in amounts.values():
            yield _amount(text) is None, f"{text!r} is no quantity"
    for what, text in resources.get("requests", {}).items():
        yield (
            (_amount(text) or 0) > (_amount(limits.get(what, text)) or 0),
            f"requests more {what} than its limit",
        )


def _walls(pod: Pod, container: dict[str, Any]) -> Checks:
    """Yield offences against the Pod Security Standard `restricted`, and against Cadre's own rules."""
    own = container.get("securityContext", {})
    both = {**pod.spec.get("securityContext", {}), **own}
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        yield pod.spec.get(key), f"{key} is not `restricted`"
    yield own.get("privileged"), "is privileged"
    yield own.get("allowPrivilegeEscalation") is not False, "allowPrivilegeEscalation is not false"
    yield own.get("capabilities") != {"drop": ["ALL"]}, "does not drop ALL capabilities, or adds one"
    yield both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0, "may run as root"
    yield (
        both.get("seccompProfile") != {"type": "RuntimeDefault"},
        "seccompProfile.type is not RuntimeDefault",
    )
    yield any("hostPort" in port for port in container.get("ports", [])), "takes a port of its node"
    if pod.labels.get(PART_OF) == "cadre":
        yield own.get("readOnlyRootFilesystem") is not True, "readOnlyRootFilesystem is not true"
    if pod.labels.get(COMPONENT) == "sandbox":
        keys = any("secretKeyRef" in v.get("valueFrom", {}) for v in container.get("env", []))
        yield keys or "envFrom" in container, "a sandbox is given secrets"


def _service(objects: Objects, service: Manifest) -> Checks:
    selector = {"matchLabels": service["spec"]["selector"]}
    yield from _selects(objects, service, selector)
    for port in service["spec"]["ports"]:
        target = port.get("targetPort", port["port"])
        for pod in objects.selected(service, selector):
            ports = [p for c in pod.containers for p in c.get("ports", [])]
            yield not any(target in p.values() for p in ports), f"no container has the port {target!r}"


def _budget(objects: Objects, budget: Manifest) -> Checks:
    spec = budget["spec"]
    yield from _selects(objects, budget, spec["selector"])
    yield ("minAvailable" in spec) == ("maxUnavailable" in spec), "either minAvailable or maxUnavailable"
    yield spec.get("maxUnavailable") in (0, "0%"), "no pod may ever be moved, so no node can be drained"


def _scaled_object(objects: Objects, scaled: Manifest) -> Checks:
    spec, provisioned = scaled["spec"], _provisioned(objects)
    name = f"Deployment/{spec['scaleTargetRef']['name']}"
    target = objects.find(name, namespace_of(scaled))
    yield target is None, f"there is no {name} to scale"
    yield target and "replicas" in target["spec"], f"each apply of {name} would undo the scaling"
    twins = [s for s in objects.of_kind("ScaledObject") if s["spec"]["scaleTargetRef"] == spec["scaleTargetRef"]]
    yield len(twins) > 1, f"{len(twins)} ScaledObjects scale {name}"
    yield not 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"], "its replica counts do not fit"
    yield "fallback" not in spec, "has no fallback"
    yield not spec["triggers"], "has no trigger"
    for trigger in spec["triggers"]:
        metadata, keys = trigger["metadata"], _TRIGGER_KEYS[trigger["type"]]
        for key in set(metadata) ^ (keys | _TRIGGER_OPTIONS & set(metadata)):
            yield True, f"a trigger has not, or should not have, {key!r}"
        yield any(not isinstance(value, str) for value in metadata.values()), "must be text, in quotes"
        if trigger["type"] == "metrics-api":
            yield not metadata["targetValue"].isdigit(), f"{metadata['targetValue']!r} must be a number"
            name, *place = str(urlsplit(metadata["url"]).hostname).split(".")
            service = objects.find(f"Service/{name}", place[0] if place else "")
            yield service is None, f"there is no Service {name} to ask"
            continue
        lag, endpoint = str(metadata["lagThreshold"]), metadata["natsServerMonitoringEndpoint"]
        yield not lag.isdigit(), f"{lag!r} must be a whole number"
        yield not re.fullmatch(r"[^/:]+:\d+", endpoint), f"{endpoint!r} must be HOST:PORT without a scheme"
        consumer = metadata.get("consumer")
        yield consumer not in provisioned, f"no Job makes the consumer {consumer!r}"


def _provisioned(objects: Objects) -> set[str]:
    """The consumers that some Job makes by `cadre provision`."""
    commands = [c.get("args", []) for pod in objects.pods for c in pod.containers]
    options = [
        pair for args in commands if args[:1] == ["provision"] for pair in zip(args[1::2], args[2::2], strict=True)
    ]
    return {f"{_PROVISION_OPTIONS.get(option, '')}{name}" for option, name in options}


def _network_policy(objects: Objects, policy: Manifest) -> Checks:
    spec = policy["spec"]
    yield from _selects(objects, policy, spec["podSelector"])
    yield set(spec["policyTypes"]) - {"Ingress", "Egress"}, "policyTypes must be Ingress or Egress"
    for key in ("ingress", "egress"):
        yield key in spec and key.title() not in spec["policyTypes"], f"{key} counts for nothing"
        for rule in spec.get(key, []):
            for block in (p["ipBlock"] for p in (*rule.get("to", []), *rule.get("from", [])) if "ipBlock" in p):
                yield not _is_network(block), f"{block} is no network with exceptions within it"


def _is_network(block: dict[str, Any]) -> bool:
    try:
        whole, *parts = map(ip_network, (block["cidr"], *block.get("except", [])))
    except ValueError:
        return False
    return all(part.subnet_of(whole) for part in parts)  # type: ignore[arg-type]


def _deployment(objects: Objects, owner: Manifest) -> Checks:
    [pod] = (p for p in objects.pods if p.owner is owner)
    policies = [p for p in objects.of_kind("NetworkPolicy") if pod in objects.selected(p, p["spec"]["podSelector"])]
    for kind in ("Ingress", "Egress"):
        walled = any(kind in policy["spec"]["policyTypes"] for policy in policies)
        yield pod.labels.get(PART_OF) == "cadre" and not walled, f"no NetworkPolicy holds for its {kind}"


def _selects(objects: Objects, by: Manifest, selector: Manifest) -> Checks:
    yield not objects.selected(by, selector) and not objects.is_given(key_of(by)), "selects no pod"


def _twice(what: str, names: list[Any]) -> Checks:
    doubled = [name for name, times in Counter(names).items() if times > 1]
    yield doubled, f"{what} are there twice: {doubled}"


def _amount(text: str) -> float | None:
    parts = _QUANTITY.fullmatch(text)
    return float(parts[1]) * _FACTORS[parts[2]] if parts else None


_RULES = {
    "Deployment": _deployment,
    "Job": _deployment,
    "NetworkPolicy": _network_policy,
    "PodDisruptionBudget": _budget,
    "ScaledObject": _scaled_object,
    "Service": _service,
}
