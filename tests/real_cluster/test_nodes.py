"""A node loses power under runs, and what was on it goes on elsewhere."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from harness.patience import eventually
from real_cluster.cluster import Cluster
from real_cluster.conftest import Place

PROGRAMS = Path(__file__).with_name("in_pods")
RUNS = 10
EFFECTS = 4
"""Of a run: two of the boss, two of its member."""
LEDGER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: ledger}
spec:
  selector: {matchLabels: {app: ledger}}
  template:
    metadata: {labels: {app: ledger}}
    spec:
      nodeSelector: {kubernetes.io/hostname: node-0}
      containers:
        - name: main
          image: cadre:test
          command: [python, /programs/ledger.py]
          volumeMounts: [{name: programs, mountPath: /programs}]
      volumes: [{name: programs, configMap: {name: programs}}]
---
apiVersion: v1
kind: Service
metadata: {name: ledger}
spec: {selector: {app: ledger}, ports: [{port: 9000}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cadre-values}
data:
  kubernetes.yaml: |
    workloads:
      tools/*:
        env: {PYTHONPATH: /programs}
        pod:
          containers: [{name: main, volumeMounts: [{name: programs, mountPath: /programs}]}]
          volumes: [{name: programs, configMap: {name: programs}}]
"""
DESK = """
apiVersion: cadre.dev/v1
kind: ToolServer
metadata: {name: marks}
spec: {module: marks, tools: [note, mark]}
---
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec: {description: Answers., kind: tool_calling, tools: [note, mark], limits: {max_steps: 9, away: 300}}
---
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: boss}
spec: {description: Leads., kind: tool_calling, tools: [note, mark], team: [clerk], limits: {max_steps: 9, away: 300}}
"""
OBJECTS = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in yaml.safe_load_all(DESK)]
MOVED = ("agent-boss", "agent-clerk", "tools-marks")


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    for number in (1, 2):
        cluster.add_node(number)
    yield cluster
    for number in (1, 2):
        if number in cluster.further:
            cluster.kill_node(number)
        cluster.kubectl("delete", "node", f"node-{number}")


def prepare(place: Place) -> None:
    """Apply a desk whose effects are counted."""
    programs = [f"--from-file={one}" for one in sorted(PROGRAMS.glob("[lm]*.py"))]
    place.kubectl("create", "configmap", "programs", *programs)
    place.kubectl("apply", "-f", "-", given=LEDGER)
    place.kubectl("rollout", "status", "deployment/ledger", "--timeout=90s")


@pytest.mark.timeout(900)
def test_work_goes_on_after_a_node_with_a_server_of_nats_dies(nodes: Cluster, tmp_path: Path) -> None:
    place = Place(nodes, "three-servers", tmp_path)
    print(f"three servers on three nodes: installed in {place.install('cadre', 'nats.replicas=3'):.1f} s")
    prepare(place)
    others = ("node-0", "node-2")
    nodes.kubectl("cordon", *others)
    place.kubectl("apply", "-f", "-", given=DESK)
    place.ready(*OBJECTS)
    nodes.kubectl("uncordon", *others)
    assert {where(place, name) for name in MOVED} == {"node-1"}
    assert [where(place, f"nats-{number}") for number in range(3)].count("node-1") == 1
    place.succeed(place.begin("boss"))
    timeline = Timeline(place, "node-1")
    before = effects(place)
    runs = place.begin("boss", RUNS // 2)
    timeline.lose()
    runs += place.begin("boss", RUNS // 2)
    timeline.note("the other half of the runs is taken")
    timeline.watch()
    place.succeed(runs)
    timeline.note("all runs are whole")
    print(timeline.events)
    check_effects(place, before, effects(place), runs)
    timeline.leave()


@pytest.mark.timeout(900)
def test_a_single_server_of_nats_leaves_a_dead_node_when_it_is_out_of_service(nodes: Cluster, tmp_path: Path) -> None:
    """As docs/kubernetes.md says it. The volume can be had on each node, as one of a network."""
    place = Place(nodes, "one-server", tmp_path)
    nodes.kubectl("cordon", "node-0")
    print(f"all on one node: installed in {place.install():.1f} s")
    nodes.kubectl("uncordon", "node-0")
    prepare(place)
    place.kubectl("apply", "-f", "-", given=DESK)
    place.ready(*OBJECTS)
    assert {where(place, name) for name in ("nats-0", "memory")} == {"node-2"}
    timeline = Timeline(place, "node-2")
    before = effects(place)
    runs = place.begin("boss", RUNS)
    timeline.lose()
    eventually(timeline.is_lost, what="the node is not ready", within=180)
    timeline.note("the node is not ready")
    eventually(lambda: place.status("/v1/agents") == 503, what="a gateway says that NATS is away", within=180)
    timeline.note("a gateway answers 503")
    nodes.kubectl("taint", "node", "node-2", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
    timeline.note("out of service")
    eventually(lambda: place.status("/readyz") == 200, what="everything works again", within=180)
    timeline.note("the gateway is ready")
    runs += place.begin("boss")
    place.succeed(runs)
    timeline.note("all runs are whole")
    print(timeline.events)
    check_effects(place, before, effects(place), runs)
    timeline.leave()


def check_effects(place: Place, before: dict[str, int], after: dict[str, int], runs: list[str]) -> None:
    """No effect came twice. Each came, or its call, which ran when the power went, says that no one knows."""
    made = Counter({line: count - before.get(line, 0) for line, count in after.items()})
    assert max(made.values()) == 1, "an effect came twice"
    for run in runs:
        effects, events = sum(count for line, count in made.items() if run in line), place.events(run)
        assert effects <= EFFECTS <= effects + events.count('"code":"interrupted"'), events


def effects(place: Place) -> dict[str, int]:
    """Return the count of each effect, as the ledger has it."""
    address = place.find("service", "ledger")["spec"]["clusterIP"]
    found: dict[str, int] = httpx2.get(f"http://{address}:9000/", timeout=10).json()
    return found


def where(place: Place, name: str) -> str:
    """Return the node of a pod, by its name or its service's."""
    pods = place.find("pods")["items"]
    [found] = [
        one["spec"]["nodeName"]
        for one in pods
        if name in (one["metadata"]["name"], one["metadata"]["labels"].get("app.kubernetes.io/name"))
    ]
    return str(found)


@dataclass
class Timeline:
    """The seconds after a loss of power at which things were first seen."""

    place: Place
    node: str
    events: dict[str, float] = field(default_factory=dict)
    begun: float = 0.0
    at_loss: dict[str, int] = field(default_factory=dict)

    def lose(self) -> None:
        self.place.cluster.kill_node(int(self.node.rpartition("-")[2]))
        self.begun = time.monotonic()
        self.at_loss = effects(self.place)

    def leave(self) -> None:
        """Remove the namespace: no one ends the pods of a dead node."""
        dead = ("--field-selector", f"spec.nodeName={self.node}", "--force", "--grace-period=0")
        self.place.kubectl("delete", "pods", *dead)
        namespace = ("delete", "namespace", self.place.name, "--timeout=300s")
        self.place.cluster.kubectl(*namespace, timeout=600)

    def note(self, what: str) -> None:
        self.events.setdefault(what, round(time.monotonic() - self.begun, 1))

    def is_lost(self) -> bool:
        node = self.place.cluster.find("node", self.node)
        return any(one["type"] == "Ready" and one["status"] != "True" for one in node["status"]["conditions"])

    def watch(self) -> None:
        """Note what comes until there are effects again."""
        eventually(self._look, what="work goes on", within=180, state=lambda: self.events)

    def _look(self) -> bool:
        if self.is_lost():
            self.note("the node is not ready")
        for pod in self.place.find("pods")["items"]:
            name = pod["metadata"]["labels"].get("app.kubernetes.io/name", "")
            if name in MOVED and pod["spec"].get("nodeName", self.node) != self.node:
                self._of_pod(name, pod)
        if "the node is not ready" in self.events and effects(self.place) != self.at_loss:
            self.note("first effect")
            return True
        return False

    def _of_pod(self, name: str, pod: dict[str, Any]) -> None:
        self.note(f"{name} has a node")
        for one in pod["status"].get("containerStatuses", []):
            if "running" in one["state"]:
                self.note(f"{name} is started")
            if one["ready"]:
                self.note(f"{name} is ready")
