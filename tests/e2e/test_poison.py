"""A record that kills its workers ends alone; anything that was in their hands with it, or comes back otherwise,
lives."""

import asyncio
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.delivery.quarantine import MAX_CRASHES_ALONE, SUSPECT_AFTER_DELIVERIES
from cadre.protocol.messages import Spilled, Task
from cadre.service.platform import Platform
from harness.patience import eventually
from harness.stack import Gateway, Service, Stack

SCRIPT = Path(__file__).parent / "frail" / "frail.py"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment |= {"CADRE_DRAIN_SECONDS": "0.1", "CADRE_HANG_SECONDS": "3"}
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    return stack.gateway()


@pytest.fixture(scope="module")
def frail(stack: Stack) -> Service:
    return stack.script(SCRIPT, start=False)


def worn_out(stack: Stack, *tasks: str) -> list[str]:
    """Tasks handed back by worker after worker, until they are suspects; their runs."""

    async def wear() -> list[str]:
        async with stack.platform() as platform:
            return await _worn_out(platform, tasks)

    return asyncio.run(wear())


async def _worn_out(platform: Platform, tasks: tuple[str, ...]) -> list[str]:
    topology = platform.topology
    worn: set[str] = set()
    all_worn = asyncio.Event()

    async def hand_back(delivery: NatsDelivery) -> None:
        if delivery.deliveries == SUSPECT_AFTER_DELIVERIES:
            worn.add(topology.parse(delivery.subject)[1])
            if len(worn) == len(tasks):
                all_worn.set()
            await asyncio.Event().wait()
        await delivery.nak()

    queues = [
        Queue(
            platform.nc,
            topology.stream(shard),
            topology.agent_consumer("frail"),
            topology.inbox_filter(shard, "frail"),
            hand_back,
            limit=len(tasks),
        )
        for shard in range(topology.shards)
    ]
    for queue in queues:
        await queue.start()
    runs = [await _send(platform, task) for task in tasks]
    await asyncio.wait_for(all_worn.wait(), 60)
    for queue in queues:
        await queue.drain(0)
    return runs


async def _send(platform: Platform, text: str) -> str:
    run = uuid4().hex
    task = Task(id=f"{run}:task", tree=run, run=run, at=time.time(), agent="frail", task=text)
    await platform.bus.send(task, "gateway")
    return run


def letters_of(gateway: Gateway, run: str) -> list[dict[str, Any]]:
    answer = gateway.request("GET", "/v1/dead-letters")
    return [letter for letter in answer.json()["dead_letters"] if letter["run"] == run]


@pytest.mark.parametrize("task", ["deadly", "hanging"])
def test_the_killer_ends_and_its_neighbours_live(
    stack: Stack, gateway: Gateway, frail: Service, tmp_path: Path, task: str
) -> None:
    """The record ends its process, or blocks it until the process is ended."""
    if frail.is_running:
        frail.terminate()
    file = tmp_path / "go"
    deadly, *innocent = worn_out(stack, task, *[f"wait {file}"] * 5)
    deaths = 0
    while not letters_of(gateway, deadly):
        frail.start(wait=False)
        assert frail.process is not None

        def over() -> bool:
            return not frail.is_running or bool(letters_of(gateway, deadly))

        eventually(over, what="the agent has died, or given the record up")
        deaths += not frail.is_running
        assert deaths <= 1 + MAX_CRASHES_ALONE
    assert deaths == 1 + MAX_CRASHES_ALONE, "all were tried together once, then one by one"
    ended = gateway.finished(deadly)
    assert (ended["state"], ended["error"]["code"]) == ("error", "poisoned")
    assert str(MAX_CRASHES_ALONE) in ended["error"]["message"]
    (letter,) = letters_of(gateway, deadly)
    assert (letter["queue"], letter["kind"]) == ("agent/frail", "task")
    assert str(MAX_CRASHES_ALONE) in letter["reason"]
    retried = gateway.request("POST", f"/v1/dead-letters/{letter['id']}/retry")
    assert (retried.status_code, retried.json()["code"]) == (409, "retry-useless")
    file.touch()
    for run in innocent:
        assert gateway.finished(run)["output"] == "well"
        assert letters_of(gateway, run) == []


def test_many_restarts_during_one_long_model_call(gateway: Gateway, frail: Service, tmp_path: Path) -> None:
    """Handed back by each SIGTERM: it is no longer ended by the sixth."""
    if not frail.is_running:
        frail.start()
    file = tmp_path / "go"
    run = gateway.submit("frail", f"wait {file}")
    restarts = SUSPECT_AFTER_DELIVERIES + 3
    for attempt in range(1, restarts + 1):
        gateway.wait_for(run, "model.called", attempt=attempt)
        frail.terminate()
        frail.start()
    gateway.wait_for(run, "model.called", attempt=restarts + 1)
    file.touch()
    assert gateway.finished(run)["output"] == "well"
    assert letters_of(gateway, run) == []


def test_a_record_whose_blob_is_back_takes_its_run_forward(stack: Stack, gateway: Gateway, frail: Service) -> None:
    if not frail.is_running:
        frail.start()
    run, task = uuid4().hex, "be well"
    data = encode(Task(id=f"{run}:task", tree=run, run=run, at=1.0, agent="frail", task=task))
    ref = f"blob:{hashlib.sha256(data).hexdigest()}"

    async def send_reference() -> None:
        async with stack.platform() as platform:
            subject = platform.topology.inbox("frail", "gateway", run, run)
            spilled = Spilled(id=f"{run}:task", tree=run, run=run, at=1.0, ref=ref, size=len(data))
            await jetstream.append(platform.nc, subject, encode(spilled))

    async def put_back() -> None:
        async with stack.platform() as platform:
            assert await platform.blobs.put(data) == ref

    asyncio.run(send_reference())
    eventually(lambda: bool(letters_of(gateway, run)), what="the record is a dead letter")
    (letter,) = letters_of(gateway, run)
    assert ref in letter["reason"]
    asyncio.run(put_back())
    assert gateway.request("POST", f"/v1/dead-letters/{letter['id']}/retry").status_code == 200
    assert gateway.finished(run)["output"] == "well"
    assert letters_of(gateway, run) == []
