"""What an object's status says, and what of it is news."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cadre.deploy.k8s.manifest import Manifest


class Condition(NamedTuple):
    """One condition of an object."""

    type: str
    holds: bool
    reason: str
    message: str = ""


ACCEPTED = Condition("Accepted", True, "Rendered")


def refused(message: str) -> tuple[Condition, Condition]:
    """The conditions of an object that cannot be acted on: what it made earlier goes on."""
    return Condition("Accepted", False, "Invalid", message), Condition("Ready", False, "Invalid", message)


def of_deployment(found: Manifest | None, note: str = "") -> Condition:
    """Whether a service is there for work."""
    if found is None:
        return Condition("Ready", False, "Progressing", "its Deployment is not there yet")
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return Condition("Ready", False, "Progressing", "its Deployment is being changed")
    told = {one["type"]: one for one in status.get("conditions") or ()}
    available, progress = told.get("Available", {}), told.get("Progressing", {})
    if available.get("status") == "True":
        return Condition("Ready", True, "Available", note)
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return Condition("Ready", False, "Stalled", progress.get("message", ""))
    return Condition("Ready", False, "Progressing", "no pod is ready: `kubectl describe` its pods")


def replicas(found: Manifest | None) -> dict[str, int]:
    """The counts of a Deployment's pods."""
    status = (found or {}).get("status") or {}
    return {key: status.get(key, 0) for key in ("replicas", "readyReplicas")}


def status_with(
    found: Manifest, conditions: tuple[Condition, ...], more: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, list[Condition]]:
    """The status that the object is to have, None when it has it; and the conditions that are news."""
    before = found.get("status") or {}
    known = {one["type"]: one for one in before.get("conditions") or ()}
    generation = found["metadata"]["generation"]
    written, news = [], []
    for one in conditions:
        old = known.get(one.type, {})
        status = "True" if one.holds else "False"
        is_same = old.get("status") == status
        if (
            not is_same
            or old.get("reason") != one.reason
            or (not one.holds and old.get("message") != one.message)
        ):
            news.append(one)
        written.append(
            {
                "type": one.type,
                "status": status,
                "reason": one.reason,
                "message": one.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if is_same else _now(),
            }
        )
    after = {"observedGeneration": generation, **more, "conditions": written}
    changed = any(before.get(key) != value for key, value in after.items())
    return (after if changed else None), news


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
