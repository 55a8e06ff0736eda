"""An object is ready when the pods of its Deployment's present template are there."""

from typing import Any

import pytest

from cadre_operator.status import Condition, held_back, of_deployment, pod_trouble, status_with


def deployment(wanted: int = 2, **status: Any) -> dict[str, Any]:
    whole = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    return {"metadata": {"generation": 3}, "spec": {"replicas": wanted}, "status": {**whole, **status}}


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"ready": False, "state": state, "image": "i", **more}])


QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
TIMED_OUT = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "Progressing"),
        (deployment(observedGeneration=2), "Progressing"),
        (deployment(updatedReplicas=1), "Progressing"),
        (deployment(availableReplicas=1), "Progressing"),
        (deployment(1, updatedReplicas=1), "Progressing"),
        (deployment(updatedReplicas=0), "Progressing"),
        (deployment(availableReplicas=2, conditions=[TIMED_OUT]), "ProgressDeadlineExceeded"),
        (deployment(updatedReplicas=0, conditions=[QUOTA]), "FailedCreate"),
        (deployment(), "Available"),
        (deployment(0, updatedReplicas=0, availableReplicas=0, replicas=0), "Available"),
    ],
)
def test_ready_is_what_the_present_template_has(found: dict[str, Any] | None, reason: str) -> None:
    told = of_deployment(found)
    assert (told.reason, told.holds) == (reason, reason == "Available")


@pytest.mark.parametrize(
    ("one", "reason", "named"),
    [
        (waiting("ImagePullBackOff", 'pulling "none:9"'), "ImagePullBackOff", "none:9"),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), "CreateContainerConfigError", '"s"'),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            "OOMKilled",
            "137",
        ),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"reason": "Error", "exitCode": 2}}),
            "CrashLoopBackOff",
            "2",
        ),
        (
            pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "no cpu"}]),
            "Unschedulable",
            "no cpu",
        ),
    ],
)
def test_a_pod_that_does_not_come_up_gives_the_reason(one: dict[str, Any], reason: str, named: str) -> None:
    told = of_deployment(deployment(), [one])
    assert (told.holds, told.reason) == (False, reason)
    assert named in told.message


def test_a_pod_that_starts_or_goes_is_no_trouble() -> None:
    assert pod_trouble(waiting("ContainerCreating")) is None
    gone = waiting("ImagePullBackOff")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_trouble(gone) is None


def kinds(*conditions: Condition) -> set[str]:
    found = {"metadata": {"generation": 1}}
    status, _ = status_with(found, conditions, {})
    return {one["type"] for one in (status or {})["conditions"] if one["status"] == "True"}


def test_tools_that_wait_tell_what_is_under_way_from_what_has_failed() -> None:
    assert kinds(Condition("Ready", False, "Progressing")) == {"Reconciling"}
    assert kinds(Condition("Ready", False, "ImagePullBackOff")) == {"Stalled"}
    assert kinds(Condition("Ready", True, "Available")) == {"Ready"}


def test_wrong_values_leave_ready_what_goes_on() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Available", "message": ""}
    accepted, kept = held_back({"status": {"conditions": [ready]}}, "workloads: x")
    assert (accepted.holds, kept.holds, kept.reason) == (False, True, "Available")
    assert not held_back({"status": {"observedGeneration": -1}}, "workloads: x")[1].holds
