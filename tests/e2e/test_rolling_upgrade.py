"""Two versions of Cadre side by side: the older one leaves to the newer what it cannot read, and no run is lost."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.protocol.messages import SCHEMA_VERSION, Task
from harness.next_version import NEXT, next_version
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"
LEFT = "is left to a newer replica"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes of the next version."""
    return next_version(tmp_path_factory.mktemp("next"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, newer: dict[str, str]) -> Iterator[Stack]:
    """Of each agent and of the tools one process of each version; the gateway is of the next one."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("boss", "worker", "helper"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
            stack.add(f"{name}-next", "cadre_agent", TEAM / f"{name}.yaml", start=False, **newer)
        stack.tools(TEAM / "tools.py", start=False)
        stack.add("tools-next", "cadre_tools", TEAM / "tools.py", start=False, **newer)
        stack.add("gateway", "cadre_gateway", start=False, **newer)
        stack.start_all()
        yield stack


def said(stack: Stack, name: str, text: str) -> bool:
    return text in stack.services[name].log.read_text()


def test_runs_go_on_while_both_versions_are_at_work(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    runs = [gateway.submit("boss", f"delegate: use effect {file} 0.2") for _ in range(5)]
    results = [gateway.finished(run, within=150) for run in runs]
    assert {result["state"] for result in results} == {"success"}
    marks = file.read_text().splitlines()
    assert len(marks) == len(set(marks)) == 5
    # The older processes had their share of it.
    assert any(said(stack, name, LEFT) for name in ("boss", "worker", "helper", "tools"))


def test_a_run_whose_newer_worker_died_waits_for_the_next_one(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    """Its journal is of the newer version already, and only an older worker is left."""
    file = tmp_path / "marks"
    stack.services["worker"].terminate()
    run = gateway.submit("worker", f"use effect {file} 2")
    gateway.wait_for(run, "tool.called")
    stack.services["worker-next"].kill()
    stack.services["worker"].log.write_text("")
    stack.services["worker"].start()
    eventually(lambda: said(stack, "worker", LEFT), what="the older worker meets the result")
    assert gateway.run(run)["state"] == "running"
    stack.services["worker-next"].start()
    assert gateway.succeeded(run) == "effect is done"
    assert len(file.read_text().splitlines()) == 1


def test_a_newer_task_waits_for_a_worker_that_reads_it(stack: Stack, gateway: Gateway) -> None:
    stack.services["worker-next"].terminate()
    stack.services["worker"].log.write_text("")
    run = gateway.submit("worker", "nothing")
    eventually(
        lambda: said(stack, "worker", f"schema version {NEXT} is newer"),
        what="the older worker meets the task",
    )
    stack.services["worker-next"].start()
    assert gateway.finished(run)["state"] == "success"


def test_records_of_this_version_are_read_by_the_next(stack: Stack, gateway: Gateway) -> None:
    """Those that waited while the service was upgraded."""
    run = "01d" + "0" * 20
    task = Task(id=f"{run}:task", tree=run, run=run, at=time.time(), agent="helper", task="say hello")

    async def publish() -> None:
        async with stack.platform() as platform:
            subject = platform.topology.inbox("helper", "test", run, run)
            await jetstream.append(platform.nc, subject, encode(task))

    assert task.v == SCHEMA_VERSION
    stack.services["helper"].terminate()
    asyncio.run(publish())
    assert gateway.finished(run)["state"] == "success"
