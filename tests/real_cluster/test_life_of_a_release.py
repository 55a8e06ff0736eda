"""Tests of what an administrator does with the chart, from an empty cluster to an uninstall and back."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
import yaml

from harness.patience import eventually, patience
from real_cluster.cluster import Cluster
from real_cluster.conftest import CHART, Place
from real_cluster.node import Refused

DESK = """
apiVersion: cadre.dev/v1
kind: ToolServer
metadata: {name: desk}
spec: {module: cadre_standard_tools}
---
apiVersion: cadre.dev/v1
kind: Model
metadata: {name: small}
spec: {url: "http://scripted-model:8090/v1", name: scripted}
---
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec: {description: Answers., kind: tool_calling, model: small, tools: [list_files], limits: {max_steps: 6}}
---
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: boss}
spec: {description: Has others answer., kind: tool_calling, model: small, team: [clerk], limits: {max_steps: 6}}
---
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: office}
spec: {description: An office., agents: [clerk, boss]}
---
apiVersion: cadre.dev/v1
kind: Schedule
metadata: {name: hourly}
spec: {agent: clerk, task: Say what time it is., every: 1h}
"""
OBJECTS = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in yaml.safe_load_all(DESK)]


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A namespace that the tests of this file go through one after the other."""
    return Place(cluster, "life", tmp_path_factory.mktemp("life"))


def names(place: Place, kinds: str) -> set[str]:
    return {one["metadata"]["name"] for one in place.find(kinds)["items"]}


def test_an_administrators_secret_that_is_there_stops_no_installation(place: Place) -> None:
    key = {"CADRE_ADMIN_KEY": b64encode(b"0123456789abcdef" * 3).decode()}
    place.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cadre-gateway"}, "data": key})
    print(f"installed in {place.install():.1f} s")
    assert place.find("secret", "cadre-gateway")["data"] == key
    assert place.restarts() == {}
    place.uninstall()
    eventually(
        lambda: names(place, "deployments,secrets") == {"scripted-model", "cadre-model", "cadre-gateway"},
        what="services and their keys are gone",
        state=lambda: place.kubectl("get", "all,secrets"),
    )
    assert place.find("secret", "cadre-gateway")["data"] == key, "it is not the operator's"
    place.kubectl("delete", "secret", "cadre-gateway")


def test_an_installation_over_what_was_left_and_a_team(place: Place) -> None:
    print(f"installed again in {place.install():.1f} s")
    place.kubectl("apply", "-f", "-", given=DESK)
    print(f"a team was ready after {place.ready(*OBJECTS):.1f} s")
    assert place.restarts() == {}
    place.succeed(place.begin("boss", 3))


def test_an_autoscaler_of_ones_own_counts_an_agents_pods(place: Place) -> None:
    """There are no measurements here: what it does is to see to its least number."""
    target = {"apiVersion": "cadre.dev/v1", "kind": "Agent", "name": "clerk"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4}
    about = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "clerk"}}
    place.apply({**about, "spec": spec})
    place.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "agent/clerk", "--timeout=180s")
    place.kubectl("delete", "horizontalpodautoscaler", "clerk")
    place.kubectl("patch", "agent", "clerk", "--type=merge", "-p", '{"spec": {"replicas": null}}')
    eventually(lambda: place.find("deployment", "agent-clerk")["spec"]["replicas"] == 1, what="there is one")


def test_definitions_can_be_applied_again(place: Place) -> None:
    place.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))


def test_a_changed_configuration_restarts_nats_under_runs(place: Place) -> None:
    before, key = place.find("pod", "nats-0")["metadata"]["uid"], place.admin_key
    runs = place.begin("boss", 5)
    print(f"upgraded in {place.upgrade('cadre', 'nats.config.lame_duck_duration=31s'):.1f} s")
    assert place.find("pod", "nats-0")["metadata"]["uid"] != before
    place.succeed(runs)
    late = {"description": "Comes later.", "kind": "tool_calling", "model": "small"}
    place.apply({"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": "late"}, "spec": late})
    print(f"an agent was ready after {place.ready('agent/late'):.1f} s")
    place.cluster.helm("rollback", "cadre", "-n", place.name, "--wait", "--timeout", f"{patience(180):.0f}s")
    place.succeed(place.begin("late"))
    assert place.admin_key == key
    assert place.restarts() == {}


def test_a_configuration_that_nats_refuses_is_named(place: Place) -> None:
    """As somebody's edit of the ConfigMap: the chart's own change starts NATS again."""
    written = place.find("configmap", "nats")["data"]["nats.conf"]
    changed = {"data": {"nats.conf": written.replace("lame_duck_duration: 30s", "lame_duck_duration: 33s")}}
    place.kubectl("patch", "configmap", "nats", "--type=merge", "-p", json.dumps(changed))
    place.kubectl("annotate", "pod", "nats-0", "tests/sync=now")  # a changed pod is synced at once
    unheard = {"description": "Comes later.", "kind": "tool_calling", "model": "small"}
    about = {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": "unheard"}, "spec": unheard}
    eventually(
        lambda: "33s" in place.kubectl("exec", "nats-0", "-c", "nats", "--", "cat", "/etc/nats/nats.conf"),
        what="it is there",
    )
    place.apply(about)

    def told() -> str:
        conditions = place.find("agent", "unheard")["status"].get("conditions", [])
        return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")

    eventually(lambda: told() == "UsersNotRead", what="the status says so", within=150, state=told)
    place.kubectl("rollout", "restart", "statefulset/nats")
    print(f"ready after {place.ready('agent/unheard'):.1f} s")
    place.kubectl("delete", "agent", "unheard")
    pods = ("pod", "-l", "app.kubernetes.io/name=agent-unheard")
    place.kubectl("wait", "--for=delete", *pods, f"--timeout={patience(150):.0f}s")


def test_memories_outlive_their_pod_and_a_rollout_ends(place: Place) -> None:
    place.kubectl("rollout", "restart", "deployment/memory")
    place.kubectl("rollout", "status", "deployment/memory", f"--timeout={patience(90):.0f}s")
    pod = place.find("pods", "-l", "app.kubernetes.io/name=memory")["items"]
    assert len(pod) == 1
    assert place.find("pvc", "memory")["status"]["phase"] == "Bound"
    assert place.restarts() == {}


def test_another_release_takes_up_what_was_left(place: Place) -> None:
    run = place.begin("clerk")
    place.succeed(run)
    place.uninstall()
    eventually(lambda: place.find("pod", "nats-0") is None, what="NATS is gone")
    assert {one["metadata"]["name"] for one in place.find("pvc")["items"]} == {"data-nats-0", "memory"}
    print(f"installed under another name in {place.install('other'):.1f} s")
    place.ready(*OBJECTS)
    place.succeed(run)
    place.succeed(place.begin("boss", 3))
    started = {name: count for name, count in place.restarts().items() if not name.startswith("agent-")}
    assert started == {}


def test_a_namespace_goes_with_all_that_is_in_it(place: Place) -> None:
    place.cluster.kubectl("delete", "namespace", place.name, f"--timeout={patience(120):.0f}s", timeout=600)


def test_three_servers_of_nats_lose_one_under_runs(cluster: Cluster, tmp_path: Path) -> None:
    place = Place(cluster, "three", tmp_path)
    print(f"three servers: installed in {place.install('cadre', 'nats.replicas=3'):.1f} s")
    place.kubectl("apply", "-f", "-", given=DESK)
    place.ready(*OBJECTS)
    runs = place.begin("boss", 5)
    place.kubectl("delete", "pod", "nats-1", "--grace-period=0", "--force")
    runs += place.begin("boss", 5)
    place.succeed(runs)
    with pytest.raises(Refused, match=r"nats\.replicas"):
        place.upgrade("cadre", "nats.replicas=1")
    assert place.restarts() == {}
    cluster.kubectl("delete", "namespace", place.name, f"--timeout={patience(120):.0f}s", timeout=600)
