"""ScaledObjects: KEDA reads their metadata as text, and says what it misses only at run time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cadre.deploy.k8s.lint.objects import Objects, key_of, mapping, mappings, namespace_of

_TRIGGER = "nats-jetstream"
_NEEDED = {"natsServerMonitoringEndpoint", "stream", "consumer", "lagThreshold"}
_KNOWN = _NEEDED | {"account", "accountID", "activationLagThreshold", "useHttps"}
_NUMBERS = ("lagThreshold", "activationLagThreshold")
_OPTIONS = {"agent-": "--agent", "tool-": "--tool", "code-": "--pool"}
"""Options of `cadre provision` by the beginning of a consumer's name."""


def problems(objects: Objects) -> Iterator[str]:
    """Yields the problems, each as `Kind/name: what`."""
    found = list(objects.of_kind("ScaledObject"))
    targets = Counter((namespace_of(s), mapping(s, "spec", "scaleTargetRef").get("name")) for s in found)
    for (_, name), count in targets.items():
        if count > 1:
            yield f"Deployment/{name}: {count} ScaledObjects scale it"
    provided = _provided(objects)
    for scaled in found:
        yield from (f"{key_of(scaled)}: {problem}" for problem in _scaled_object(objects, scaled))
        for trigger in mappings(scaled, "spec", "triggers"):
            consumer = str(mapping(trigger, "metadata").get("consumer"))
            if trigger.get("type") == _TRIGGER and provided and not _is_provided(consumer, provided):
                yield f"{key_of(scaled)}: no Job makes the consumer {consumer!r} before KEDA asks for it"


def _scaled_object(objects: Objects, scaled: dict[str, Any]) -> Iterator[str]:
    spec = mapping(scaled, "spec")
    reference = mapping(spec, "scaleTargetRef")
    kind, name = reference.get("kind", "Deployment"), reference.get("name")
    target = objects.find(str(kind), namespace_of(scaled), name)
    if target is None:
        yield f"there is no {kind} {name!r} to scale"
    elif "replicas" in mapping(target, "spec"):
        yield f"{key_of(target)} sets replicas itself: each apply would undo the scaling"
    least, most = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    if not (isinstance(least, int) and isinstance(most, int) and 0 <= least <= most):
        yield f"minReplicaCount {least} and maxReplicaCount {most} do not fit"
    if not mapping(spec, "fallback"):
        yield "has no fallback: without an answer from NATS its number of replicas stays what it is"
    if not mappings(spec, "triggers"):
        yield "has no trigger"
    for trigger in mappings(spec, "triggers"):
        if trigger.get("type") == _TRIGGER:
            yield from _trigger(mapping(trigger, "metadata"))


def _trigger(metadata: dict[str, Any]) -> Iterator[str]:
    for key in sorted(set(metadata) - _KNOWN):
        yield f"{_TRIGGER} knows no {key!r}"
    for key in sorted(_NEEDED - set(metadata)):
        yield f"{_TRIGGER} needs {key!r}"
    if not {"account", "accountID"} & set(metadata):
        yield f"{_TRIGGER} needs 'account'"
    for key, value in metadata.items():
        if not isinstance(value, str):
            yield f"{key}: {value!r} must be text, in quotes"
        elif key in _NUMBERS and not value.isdigit():
            yield f"{key}: {value!r} must be a whole number"
    endpoint = str(metadata.get("natsServerMonitoringEndpoint", ""))
    if "://" in endpoint or not endpoint.rpartition(":")[2].isdigit():
        yield f"natsServerMonitoringEndpoint: {endpoint!r} must be HOST:PORT without a scheme"


def _provided(objects: Objects) -> set[tuple[str, str]]:
    """(option, name) of all Jobs that run `cadre provision`."""
    found: set[tuple[str, str]] = set()
    for pod in objects.pods:
        for container in pod.containers:
            match container.get("args"):
                case ["provision", *options]:
                    found |= set(zip(options[::2], options[1::2], strict=False))
    return found


def _is_provided(consumer: str, provided: set[tuple[str, str]]) -> bool:
    for prefix, option in _OPTIONS.items():
        if consumer.startswith(prefix):
            return (option, consumer.removeprefix(prefix)) in provided
    return True
