"""Every container of the rendered manifests, started here as a process: it answers its probes and drains in its grace.

The manifests are taken at their word: arguments, environment and files are those of the pod, the keys of its NATS user
among them, only that addresses are this machine's and folders are below one of the test's.
"""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.deploy import nats_files
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of, roles_of
from cadre.deploy.team_file import read_team
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.command import Commands
from harness.patience import eventually
from harness.pods import ADMIN_KEY, Place, Pod, secret
from harness.stack import Service, Stack

TEAM = Path(__file__).parents[2] / "teams" / "apollo"
AS_ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    nobody = "http://127.0.0.1:9"
    values = read_values(
        {
            "memory": True,
            "nats": {"shards": 2},
            "model": {"url": f"{nobody}/v1", "name": "m"},
            "telemetry": {"url": nobody},
        }
    )
    files = render(components_of(read_team(TEAM), values), values)
    rendered = [manifest for found in files.values() for manifest in found]
    return [*rendered, *secrets(tmp_path_factory.mktemp("auth"))]


def secrets(folder: Path) -> list[Manifest]:
    """As `cadre auth init --secrets` prints them."""
    nats_files.update_users(folder, roles_of(read_team(TEAM), memory=True), Topology(2))
    return list(yaml.safe_load_all(nats_files.secrets(folder, "cadre")))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, manifests: list[Manifest]) -> Iterator[Stack]:
    """Its server lets no one in who is no user of the Secret that it is given."""
    folder = tmp_path_factory.mktemp("pods")
    (folder / "auth.conf").write_text(secret(manifests, nats_files.SERVER_SECRET)["auth.conf"])
    with Stack(folder, nats='include "auth.conf"\n') as stack:
        yield stack


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory, manifests: list[Manifest]) -> Path:
    file = tmp_path_factory.mktemp("operator") / "nats.nk"
    file.write_text(secret(manifests, "cadre-nats-provision")["nats.nk"])
    return file


@pytest.fixture(scope="module")
def deployments(manifests: list[Manifest]) -> dict[str, Pod]:
    return {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "Deployment"}


@pytest.fixture(scope="module")
def provisioned(stack: Stack, manifests: list[Manifest], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Runs the Job first, as a deployment does; the consumers that the ScaledObjects ask for."""
    job = next(m for m in manifests if m["kind"] == "Job")["spec"]["template"]["spec"]
    place = Place(tmp_path_factory.mktemp("job"), manifests, stack)
    arguments = place.arguments("provision", job)
    run = Commands(stack.folder, {**stack.environment, **place.environment("provision", job)})
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    triggers = [t["metadata"] for m in manifests if m["kind"] == "ScaledObject" for t in m["spec"]["triggers"]]
    return sorted({f"{t['stream']} {t['consumer']}" for t in triggers})


@pytest.fixture(scope="module")
def services(
    stack: Stack,
    deployments: dict[str, Pod],
    manifests: list[Manifest],
    provisioned: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Service]:
    """All of them, alive by their own startup probes."""
    place = Place(tmp_path_factory.mktemp("files"), manifests, stack)
    for name, pod in deployments.items():
        arguments = ["cadre.cli.main", *place.arguments(name, pod)]
        stack.add(name, *arguments, start=False, **place.environment(name, pod))
    for service in stack.services.values():
        service.start(wait=False)
    for name, service in stack.services.items():
        probe = deployments[name]["containers"][0]["startupProbe"]
        eventually(partial(answers, service, probe), what=f"{name} is alive", state=service.log.read_text)
    return stack.services


def answers(service: Service, probe: dict[str, Any]) -> bool:
    assert service.is_running, service.log.read_text()
    try:
        return httpx2.get(f"{service.url}{probe['httpGet']['path']}", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def test_the_job_makes_every_consumer_that_is_asked_for(stack: Stack, provisioned: list[str], operator: Path) -> None:
    async def found() -> list[str]:
        nc = await connect(Settings(nats_url=stack.nats.url, nats_credentials=str(operator)), "test")
        try:
            names = []
            for consumer in provisioned:
                stream, _, name = consumer.partition(" ")
                answer = await jetstream.api(nc, f"CONSUMER.INFO.{stream}.{name}")
                assert "error" not in answer, (consumer, answer)
                names.append(f"{answer['stream_name']} {answer['name']}")
            return names
        finally:
            await nc.close()

    assert asyncio.run(found()) == provisioned


def test_the_whole_team_can_be_provisioned_by_its_folder(stack: Stack, provisioned: list[str], operator: Path) -> None:
    run = Commands(stack.folder, {**stack.environment, "CADRE_NATS_CREDENTIALS": str(operator)})
    done = run("provision", TEAM)
    assert done.returncode == 0, done.stderr
    # As many as the Job has made, on each of two shards.
    queues = len({consumer.partition(" ")[2] for consumer in provisioned})
    assert f"2 shards with {queues} queues each" in done.stderr


def test_every_container_starts_and_answers_its_probes(
    services: dict[str, Service], deployments: dict[str, Pod]
) -> None:
    assert set(services) == set(deployments)
    assert {"gateway", "memory", "tracer", "sandbox-default", "tools-tables", "agent-manager"} <= set(services)
    for name, service in services.items():
        main = deployments[name]["containers"][0]
        for probe in ("livenessProbe", "readinessProbe"):
            eventually(
                partial(answers, service, main[probe]),
                what=f"{name} answers its {probe}",
                state=service.log.read_text,
            )


def test_the_gateway_sees_the_whole_team(services: dict[str, Service]) -> None:
    def seen() -> set[str]:
        url = f"{services['gateway'].url}/v1/agents"
        agents = httpx2.get(url, headers=AS_ADMIN, timeout=30).json()["agents"]
        return {agent["name"] for agent in agents}

    wanted = set(read_team(TEAM).agents)
    eventually(lambda: seen() == wanted, what="all agents are live", state=seen)


def test_a_schedule_starts_a_run(services: dict[str, Service]) -> None:
    url = f"{services['gateway'].url}/v1/schedules/once"
    spec = {"agent": next(iter(read_team(TEAM).agents)), "task": "Hello.", "every": 1, "count": 1}
    assert httpx2.put(url, json=spec, timeout=30).status_code == 401, "the rendered gateway asks who it is"
    assert httpx2.put(url, json=spec, headers=AS_ADMIN, timeout=30).status_code == 200
    eventually(
        lambda: httpx2.get(url, headers=AS_ADMIN, timeout=30).json()["started"] == 1,
        what="the tick has come",
    )


def test_every_container_drains_within_its_grace(services: dict[str, Service], deployments: dict[str, Pod]) -> None:
    told = time.monotonic()
    for service in services.values():
        service.signal(15)
    for name, service in services.items():
        grace = deployments[name]["terminationGracePeriodSeconds"]
        assert service.process is not None
        left = told + grace - time.monotonic()
        assert service.process.wait(timeout=max(left, 0)) == 0, service.log.read_text()


def test_nobody_tried_what_its_user_may_not_do(stack: Stack, services: dict[str, Service]) -> None:
    """From the first start to the last drain."""
    assert not any(service.is_running for service in services.values())
    assert not refusals(stack)
    nobody = Commands(stack.folder, stack.environment)("provision", TEAM)
    assert nobody.returncode != 0
    assert refusals(stack), "the log tells nothing"


def refusals(stack: Stack) -> list[str]:
    log = (stack.folder / "nats.log").read_text()
    return [line for line in log.splitlines() if "Violation" in line or "authentication error" in line]
