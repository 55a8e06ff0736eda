"""One cluster for all tests, and a namespace of it with the chart in it."""

import json
import os
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.patience import eventually, patience
from real_cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "cadre"
VALUES = {
    "cadre": {
        "image": "cadre:test",
        "model": {"url": "http://scripted-model:8090/v1", "name": "scripted"},
        "memory": {"engine": "embedded"},
    },
}
MODEL = [
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "scripted-model"},
        "spec": {
            "selector": {"matchLabels": {"app": "scripted-model"}},
            "template": {
                "metadata": {"labels": {"app": "scripted-model"}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": "node-0"},
                    "containers": [
                        {
                            "name": "main",
                            "image": "cadre:test",
                            "args": [
                                "scripted-model",
                                "--mode",
                                "auto",
                                "--host",
                                "0.0.0.0",
                                "--port",
                                "8090",
                            ],
                            "readinessProbe": {"tcpSocket": {"port": 8090}, "periodSeconds": 1},
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "scripted-model"},
        "spec": {"selector": {"app": "scripted-model"}, "ports": [{"port": 8090}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cadre-model"},
        "stringData": {"CADRE_MODEL_KEY": "any"},
    },
]


def add_model(cluster: Cluster, namespace: str) -> None:
    """Make a namespace with a scripted model in it."""
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("-n", namespace, "apply", "-f", "-", given=_listed(MODEL))
    cluster.kubectl("-n", namespace, "rollout", "status", "deployment/scripted-model", "--timeout=120s")


def _listed(manifests: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests]})


class Place:
    """A namespace with releases of the chart."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.name = cluster, namespace
        self._values = folder / f"{namespace}.json"
        self._values.write_text(json.dumps(VALUES))
        add_model(cluster, namespace)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return self.cluster.kubectl("-n", self.name, *arguments, given=given)

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given=_listed(manifests))

    def find(self, *arguments: str) -> Any:
        return self.cluster.find("-n", self.name, *arguments)

    def install(self, release: str = "cadre", *settings: str) -> float:
        """Install the chart; return the seconds until all of it is ready."""
        return self._helm("install", release, *settings)

    def upgrade(self, release: str = "cadre", *settings: str) -> float:
        return self._helm("upgrade", release, *settings)

    def uninstall(self, release: str = "cadre") -> None:
        self.cluster.helm("uninstall", release, "-n", self.name, "--wait")

    def _helm(self, what: str, release: str, *settings: str) -> float:
        begun = time.monotonic()
        options = [part for one in settings for part in ("--set", one)]
        self.cluster.helm(
            *(what, release, str(CHART), "-n", self.name, "-f", str(self._values), *options),
            *("--wait", "--timeout", f"{patience(180):.0f}s"),
        )
        return time.monotonic() - begun

    def ready(self, *objects: str) -> float:
        """Wait until objects are ready; return the seconds until then."""
        begun = time.monotonic()
        self.kubectl("wait", "--for=condition=Ready", f"--timeout={patience(90):.0f}s", *objects)
        return time.monotonic() - begun

    def restarts(self) -> dict[str, int]:
        """Return the pods whose containers were started more than once."""
        return {pod: count for pod, count in self.cluster.restarts(self.name).items() if count}

    @property
    def admin_key(self) -> str:
        return b64decode(self.find("secret", "cadre-gateway")["data"]["CADRE_ADMIN_KEY"]).decode()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the gateway answers, asked again while it is away."""
        address = self.find("service", "gateway")["spec"]["clusterIP"]
        headers, found = {"Authorization": f"Bearer {self.admin_key}"}, list[Any]()
        patient = httpx2.Timeout(30, connect=2)  # the address of a pod on a dead node is silent

        def answered() -> bool:
            try:
                answer = httpx2.request(method, f"http://{address}{path}", json=body, headers=headers, timeout=patient)
            except httpx2.TransportError:
                return False
            if answer.status_code in (502, 503):
                return False
            answer.raise_for_status()
            found.append(answer.json())
            return True

        eventually(answered, what=f"{method} {path} is answered")
        return found[-1]

    def status(self, path: str) -> int:
        """Return the status of the gateway's answer; 0 without one."""
        try:
            return self._get(path, 2).status_code
        except httpx2.TransportError:
            return 0

    def retry_after(self, path: str) -> int:
        """Return the seconds after which a refused request is to be made again; 0 if the answer does not say it."""
        return int(self._get(path, 5).headers.get("retry-after", 0))

    def refuses(self, agent: str) -> bool:
        """Return whether the gateway answers 503 or 507 to a new run."""
        address = self.find("service", "gateway")["spec"]["clusterIP"]
        headers = {"Authorization": f"Bearer {self.admin_key}"}
        task = {"agent": agent, "task": "Say 1."}
        try:
            answer = httpx2.post(f"http://{address}/v1/runs", json=task, headers=headers, timeout=30)
        except httpx2.TransportError:
            return False
        return answer.status_code in (503, 507)

    def events(self, run: str) -> str:
        """Return the events of a run that has ended, as the gateway sends them."""
        return self._get(f"/v1/runs/{run}/events", 30).text

    def _get(self, path: str, timeout: float) -> httpx2.Response:
        address = self.find("service", "gateway")["spec"]["clusterIP"]
        headers = {"Authorization": f"Bearer {self.admin_key}"}
        return httpx2.get(f"http://{address}{path}", headers=headers, timeout=timeout)

    def begin(self, agent: str, count: int = 1) -> list[str]:
        """Begin runs; return their ids."""
        tasks = [{"agent": agent, "task": f"Say {number}."} for number in range(count)]
        return [str(self.ask("POST", "/v1/runs", task)["id"]) for task in tasks]

    def succeed(self, runs: list[str]) -> None:
        """Wait until runs have ended, each with success."""
        eventually(lambda: all(self._run(run)["ended_at"] for run in runs), what=f"{runs} have ended")
        assert {self._run(run)["state"] for run in runs} == {"success"}

    def _run(self, run: str) -> Any:
        return self.ask("GET", f"/v1/runs/{run}")


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    folder = os.environ.get("CADRE_KUBERNETES_FOLDER")
    if not folder:
        pytest.skip("there is no cluster: `make test-kubernetes` makes one")
    one = Cluster(Path(folder))
    one.up()
    return one
