"""Defaults of each kind of service, in the form of the value `workloads`."""

from __future__ import annotations

from typing import Any


def _container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def _resources(cpu: str, memory: str, limits: dict[str, str]) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


def _tmp(size: str) -> dict[str, Any]:
    # In memory, so that the size is a hard limit: a folder on disk that outgrows its limit evicts the pod.
    return {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]}


WORKLOADS: dict[str, dict[str, Any]] = {
    # A service that waits for its model or its bus needs hardly any processor, and when it has work it may take
    # what is idle: no limit.
    "*": {
        "drain": 60,
        "pod": {**_container(resources=_resources("50m", "128Mi", {"memory": "512Mi"})), **_tmp("64Mi")},
    },
    "agent/*": {"drain": 120, "internet": True, "scale": {"min": 1, "max": 10, "lag": 64}},
    "tools/*": {"scale": {"min": 1, "max": 10, "lag": 32}},
    "sandbox/*": {
        "drain": 30,
        "scale": {"min": 1, "max": 10, "lag": 8},
        # Blocks at work are bounded by the pod's limits, not by the processors of its node.
        "env": {"CADRE_SANDBOX_TIER": "landlock", "CADRE_SANDBOX_CONCURRENCY": "4"},
        "pod": {
            **_container(resources=_resources("250m", "512Mi", {"cpu": "2", "memory": "3Gi"})),
            **_tmp("512Mi"),
        },
    },
    "memory": {"drain": 30, "pod": _container(resources=_resources("100m", "256Mi", {"memory": "1Gi"}))},
    "gateway": {"replicas": 2, "drain": 35, "linger": 5},
    "provision": {},
}
