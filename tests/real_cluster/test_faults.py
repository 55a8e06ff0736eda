"""The person on call: statuses that give the reason of a fault, and work that goes on through it."""

import json
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.patience import eventually, patience
from real_cluster.cluster import Cluster
from real_cluster.conftest import Place
from real_cluster.node import Refused
from real_cluster.test_nodes import DESK, OBJECTS, check_effects, effects, prepare

ILL = {"description": "Answers.", "kind": "tool_calling", "limits": {"max_steps": 3}}
FAULTS = [
    ("image", {"pod": {"containers": [{"name": "main", "image": "cadre:missing"}]}}, "cadre:missing"),
    (
        "memory",
        {
            "pod": {
                "containers": [
                    {"name": "main", "resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "16Mi"}}}
                ]
            }
        },
        "agent-ill",
    ),
    ("secret", {"secrets": {"OTHER_KEY": "other-secret/key"}}, "other-secret"),
]
REASONS = {
    "image": {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"},
    "memory": {"OOMKilled"},
    "secret": {"CreateContainerConfigError"},
}
UNREACHABLE = 5
SERVICES = ("agent-boss", "agent-clerk", "tools-marks", "gateway")
DELETIONS = 16
ROOM = "48m"


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A namespace with a desk whose effects are counted, and an operator that acts everywhere."""
    one = Place(cluster, "faults", tmp_path_factory.mktemp("faults"))
    prepare(one)
    print(f"installed in {one.install('cadre', 'operator.everywhere=true'):.1f} s")
    one.kubectl("apply", "-f", "-", given=DESK)
    one.ready(*OBJECTS)
    yield one
    cluster.kubectl("delete", "namespace", one.name, f"--timeout={patience(120):.0f}s", timeout=600)


def agent(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": name}, "spec": spec}


def conditions(place: Place, *name: str) -> dict[str, dict[str, str]]:
    """Return an object's conditions by type."""
    found = place.find(*name) or {}
    return {one["type"]: one for one in (found.get("status") or {}).get("conditions", [])}


def set_workloads(place: Place, text: str, workloads: dict[str, Any]) -> None:
    """Set the values of the namespace, with `workloads` over those of the file `text`."""
    values = yaml.safe_load(text)
    values["workloads"] |= workloads
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cadre-values"}}
    place.apply({**about, "data": {"kubernetes.yaml": yaml.safe_dump(values)}})


def is_incomplete(place: Place, *name: str) -> bool:
    return conditions(place, *name).get("Complete", {}).get("status") == "False"


@pytest.fixture
def values(place: Place) -> Iterator[str]:
    """The namespace's values, which are restored."""
    text = place.find("configmap", "cadre-values")["data"]["kubernetes.yaml"]
    yield text
    set_workloads(place, text, {})


@pytest.mark.parametrize(("fault", "workload", "named"), FAULTS, ids=[one[0] for one in FAULTS])
def test_a_rollout_that_fails_is_not_ready_and_names_the_reason(
    place: Place, values: str, fault: str, workload: dict[str, Any], named: str
) -> None:
    place.apply(agent("ill", ILL))
    place.ready("agent/ill")
    set_workloads(place, values, {"agent/ill": workload})
    begun = time.monotonic()

    def is_named() -> bool:
        found = conditions(place, "agent", "ill").get("Stalled", {})
        return found.get("reason") in REASONS[fault]

    eventually(is_named, what="the reason is there", state=lambda: conditions(place, "agent", "ill"))
    print(f"{fault}: named after {time.monotonic() - begun:.1f} s")
    found = conditions(place, "agent", "ill")
    assert named in found["Ready"]["message"]
    assert found["Ready"]["status"] == "False"
    pods = place.find("pods", "-l", "app.kubernetes.io/name=agent-ill")["items"]
    assert any(one["status"]["containerStatuses"][0]["ready"] for one in pods), "the previous pod goes on"
    with pytest.raises(Refused):
        place.kubectl("wait", "--for=condition=Ready", "agent/ill", "--timeout=1s")
    set_workloads(place, values, {})
    print(f"{fault}: ready again after {place.ready('agent/ill'):.1f} s")
    assert "Stalled" not in conditions(place, "agent", "ill")


def test_names_of_what_is_not_there_are_listed(place: Place) -> None:
    place.apply(
        agent("ill", {**ILL, "team": ["nowhere"], "tools": ["fly"]}),
        {
            "apiVersion": "cadre.dev/v1",
            "kind": "Schedule",
            "metadata": {"name": "lost"},
            "spec": {"agent": "unknown", "task": "Say it.", "every": "1h"},
        },
    )
    for kind, name, missing in (("agent", "ill", {"nowhere", "fly"}), ("schedule", "lost", {"unknown"})):
        is_said = partial(is_incomplete, place, kind, name)
        eventually(is_said, what=f"{kind} is not complete", state=partial(conditions, place, kind, name))
        message = conditions(place, kind, name)["Complete"]["message"]
        assert [one for one in missing if one not in message] == []
    place.kubectl("delete", "schedule", "lost")


def test_values_that_are_invalid_are_named_and_leave_ready_what_runs(place: Place, values: str) -> None:
    place.apply(agent("ill", ILL))
    place.ready("agent/ill")
    set_workloads(place, values, {"agent/ill": {"replicsa": 3}})
    eventually(
        lambda: conditions(place, "agent", "ill").get("Accepted", {}).get("status") == "False",
        what="the values are refused",
        state=lambda: conditions(place, "agent", "ill"),
    )
    found = conditions(place, "agent", "ill")
    assert "replicsa" in found["Accepted"]["message"]
    assert found["Ready"]["status"] == "True"


def test_a_number_of_pods_set_by_kubectl_scale_stays(place: Place) -> None:
    place.kubectl("scale", "agent/ill", "--replicas=2")
    place.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "agent/ill", f"--timeout={patience(90):.0f}s")
    place.kubectl("rollout", "restart", "deployment/cadre-operator")
    place.kubectl("rollout", "status", "deployment/cadre-operator", f"--timeout={patience(90):.0f}s")
    place.apply(agent("ill", {**ILL, "description": "Answers otherwise."}))
    place.ready("agent/ill")
    assert place.find("deployment", "agent-ill")["spec"]["replicas"] == 2
    assert place.find("agent", "ill")["status"]["replicas"] == 2


def test_what_an_orphaned_object_left_is_adopted(place: Place) -> None:
    before = place.find("deployment", "agent-ill")["metadata"]["uid"]
    place.kubectl("delete", "agent", "ill", "--cascade=orphan")
    assert place.find("deployment", "agent-ill")["metadata"]["uid"] == before
    place.apply(agent("ill", ILL))
    place.ready("agent/ill")
    assert place.find("deployment", "agent-ill")["metadata"]["uid"] == before
    place.kubectl("delete", "agent", "ill")
    place.kubectl("wait", "--for=delete", "deployment/agent-ill", f"--timeout={patience(90):.0f}s")


def test_a_second_operator_takes_nothing_from_the_first(place: Place) -> None:
    rights = "clusterroles,clusterrolebindings"
    before = {
        (one["kind"], one["metadata"]["name"]): (one.get("subjects"), one.get("rules"))
        for one in place.cluster.find(rights, "-l", "app.kubernetes.io/part-of=cadre")["items"]
    }
    assert before
    place.cluster.kubectl("create", "namespace", "second")
    render = ("cadre", "k8s", "operator", "--namespace", "second")
    settings = ("--set", "namespace=second", "--set", "image=cadre:test")
    made = subprocess.run(
        [*render, *settings], env=place.cluster.environment, capture_output=True, text=True, check=True
    )
    place.cluster.kubectl("apply", "-f", "-", given=made.stdout)
    place.cluster.kubectl("-n", "second", "rollout", "status", "deployment/cadre-operator", "--timeout=120s")
    after = {
        (one["kind"], one["metadata"]["name"]): (one.get("subjects"), one.get("rules"))
        for one in place.cluster.find(rights, "-l", "app.kubernetes.io/part-of=cadre")["items"]
    }
    assert {key: after.get(key) for key in before} == before
    place.apply(agent("ill", ILL))
    place.ready("agent/ill")
    place.cluster.kubectl("delete", "-f", "-", given=made.stdout)
    place.cluster.kubectl("delete", "namespace", "second", f"--timeout={patience(120):.0f}s", timeout=600)


def test_gateways_that_cannot_be_reached_hold_up_nothing_else(place: Place) -> None:
    """Schedules of a namespace without a gateway are tried again and again; agents elsewhere do not wait for that."""
    place.cluster.kubectl("create", "namespace", "silent")
    schedules = [
        {
            "apiVersion": "cadre.dev/v1",
            "kind": "Schedule",
            "metadata": {"name": f"late-{number}", "namespace": "silent"},
            "spec": {"agent": "clerk", "task": "Say it.", "every": "1h"},
        }
        for number in range(UNREACHABLE)
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": schedules}
    place.cluster.kubectl("apply", "-f", "-", given=json.dumps(listed))
    place.apply(agent("quick", ILL))
    print(f"{UNREACHABLE} schedules without a gateway: an agent was ready after {place.ready('agent/quick'):.1f} s")
    eventually(
        lambda: all(
            (one.get("status") or {}).get("conditions")
            for one in place.cluster.find("schedules", "-n", "silent")["items"]
        ),
        what="each schedule has a status",
    )
    place.kubectl("delete", "agent", "quick")
    begun = time.monotonic()
    place.cluster.kubectl("delete", "namespace", "silent", f"--timeout={patience(120):.0f}s", timeout=600)
    print(f"a namespace with schedules and without a gateway was gone after {time.monotonic() - begun:.1f} s")


@pytest.mark.timeout(900)
def test_pods_are_deleted_by_force_under_runs(place: Place) -> None:
    before = effects(place)
    runs = place.begin("boss", 10)
    begun = time.monotonic()
    for number in range(DELETIONS):
        name = SERVICES[number % len(SERVICES)]
        place.kubectl(
            *("delete", "pod", "-l", f"app.kubernetes.io/name={name}"), "--grace-period=0", "--force", "--wait=false"
        )
        place.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={patience(90):.0f}s")
        if number % 4 == 3:
            runs += place.begin("boss", 2)
    place.succeed(runs)
    print(f"{DELETIONS} deletions by force under {len(runs)} runs: whole after {time.monotonic() - begun:.1f} s")
    check_effects(place, before, effects(place), runs)


@pytest.mark.timeout(900)
def test_a_gateway_answers_while_nats_is_away(place: Place) -> None:
    before = effects(place)
    runs = place.begin("boss", 5)
    place.kubectl("scale", "statefulset/nats", "--replicas=0")
    eventually(lambda: place.status("/v1/agents") == 503, what="a gateway says that NATS is away")
    assert place.retry_after("/v1/agents") > 0
    slices = place.find("endpointslices", "-l", "kubernetes.io/service-name=gateway")["items"]
    ready = [end["conditions"]["ready"] for one in slices for end in one["endpoints"]]
    assert any(ready), "the Service keeps its gateway"
    place.kubectl("scale", "statefulset/nats", "--replicas=1")
    begun = time.monotonic()
    eventually(lambda: place.status("/readyz") == 200, what="everything works again", within=180)
    print(f"ready {time.monotonic() - begun:.1f} s after NATS was started")
    place.succeed(runs)
    check_effects(place, before, effects(place), runs)


@pytest.mark.timeout(900)
def test_nats_with_a_full_disk_works_again_once_there_is_room(cluster: Cluster, tmp_path: Path) -> None:
    place = Place(cluster, "full", tmp_path)
    folder = cluster.add_small_volume("small", ROOM)
    prepare(place)
    settings = ("nats.storage.className=small", "nats.storage.size=10Gi")
    print(f"a small disk: installed in {place.install('cadre', *settings):.1f} s")
    place.kubectl("apply", "-f", "-", given=DESK)
    place.ready(*OBJECTS)
    before = effects(place)
    runs = place.begin("boss", 3)
    place.succeed(runs)
    ballast = folder / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], check=False, capture_output=True)
    eventually(lambda: place.refuses("boss"), what="a run is refused", within=180)
    eventually(lambda: place.status("/readyz") == 503, what="the gateway says that work cannot go on", within=180)
    ballast.unlink()
    begun = time.monotonic()
    eventually(lambda: place.status("/readyz") == 200, what="everything works again", within=400)
    print(f"a disk that was full: ready {time.monotonic() - begun:.1f} s after there was room")
    runs += place.begin("boss", 3)
    place.succeed(runs)
    check_effects(place, before, effects(place), runs)
    cluster.kubectl("delete", "namespace", place.name, f"--timeout={patience(120):.0f}s", timeout=600)
