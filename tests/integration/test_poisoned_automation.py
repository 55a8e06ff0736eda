"""Ticks and events that end their handlers become dead letters, on a real server and with real processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.nats.queues.consumers import ENDLESS
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.quarantine import MAX_CRASHES_ALONE, SUSPECT_AFTER_DELIVERIES
from cadre.protocol.topology import Subject, Topology
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import GatewayProcess, World, entered
from integration.test_schedules import shown, tasks_of


@pytest.fixture
async def gateway(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    yield gateway
    if gateway.is_alive:
        gateway.kill()


def evaluators(gateway: GatewayProcess) -> list[int]:
    """The processes in which the gateway evaluates."""
    try:
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        return [
            int(one)
            for one in children
            if b"cadre_gateway.automation.evaluating" in Path(f"/proc/{one}/cmdline").read_bytes()
        ]
    except OSError:
        return []  # it has died meanwhile


@asynccontextmanager
async def as_evaluators_come(gateway: GatewayProcess, do: Callable[[int], None]) -> AsyncIterator[list[int]]:
    """Does something to each process in which the gateway evaluates, as soon as it is there; gives their ids."""
    seen: list[int] = []

    async def watch() -> None:
        while True:
            for one in evaluators(gateway):
                if one not in seen:
                    seen.append(one)
                    do(one)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()


async def letters(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.http.get("/v1/dead-letters")).json()["dead_letters"]
    return found


async def test_a_tick_whose_evaluation_never_ends_is_a_dead_letter_and_the_next_one_comes(
    gateway: GatewayProcess,
) -> None:
    async with entered(gateway) as world:
        spec = {"agent": "boss", "task": "Tick {{ count }}.", "every": 2, "count": 1}
        async with as_evaluators_come(gateway, lambda pid: os.kill(pid, signal.SIGKILL)) as killed:
            assert (await world.http.put("/v1/schedules/dear", json=spec)).status_code == 200
            (letter,) = await until(lambda: letters(world))
        assert len(killed) == 3
        assert (letter["queue"], letter["kind"], letter["gone"]) == ("schedules", "tick", False)
        assert "dear" in letter["reason"]
        state = await shown(world, "dear")
        assert state["outcomes"][0]["outcome"] == "failed"
        whole = (await world.http.get(f"/v1/dead-letters/{letter['id']}")).json()
        assert whole["payload"]["schedule"] == "dear"
        assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200

        async def started() -> bool:
            return [one["outcome"] for one in (await shown(world, "dear"))["outcomes"]] == ["started"]

        await until(started)
        assert [task.task for task in await tasks_of(world, "boss")][-1] == "Tick 1."
        assert await letters(world) == []
        assert (await world.http.get("/healthz")).status_code == 200


async def test_an_event_whose_evaluation_dies_is_a_dead_letter_and_can_be_tried_again(
    gateway: GatewayProcess,
) -> None:
    async with entered(gateway) as world:
        spec = {"agent": "boss", "subject": "orders.*", "task": "{{ payload.item }}"}
        assert (await world.http.put("/v1/triggers/orders", json=spec)).status_code == 200
        subject = f"{world.topology.events_prefix}orders.new"
        async with as_evaluators_come(gateway, lambda pid: os.kill(pid, signal.SIGKILL)) as killed:
            await jetstream.append(world.nc, subject, b'{"item": "apples"}')
            (letter,) = await until(lambda: letters(world))
        assert len(killed) == 3
        assert (letter["queue"], letter["kind"]) == ("events", "event")
        assert "trigger orders" in letter["reason"]
        assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200
        (task,) = await until(lambda: tasks_of(world, "boss"))
        assert task.task == "apples"


async def test_an_event_that_kills_gateways_costs_a_few_of_them(
    nats_server: NatsServer, gateway: GatewayProcess
) -> None:
    async with entered(gateway) as world:
        spec = {"agent": "boss", "subject": "orders.*", "task": "{{ payload.item }}"}
        assert (await world.http.put("/v1/triggers/orders", json=spec)).status_code == 200
        gateway.stop()
        await _worn_out(world, b'{"item": "apples"}')
        deaths = 0

        def kill(_: int) -> None:
            gateway.kill()

        while True:
            gateway.start()
            async with as_evaluators_come(gateway, kill):

                async def over() -> bool:
                    return not gateway.is_alive or bool(await _letters_if_alive(world))

                await until(over)
            if gateway.is_alive:
                break
            deaths += 1
            assert deaths <= 1 + MAX_CRASHES_ALONE
        assert deaths == 1 + MAX_CRASHES_ALONE
        (letter,) = await letters(world)
        assert (letter["queue"], letter["kind"]) == ("events", "event")
        assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200
        (task,) = await until(lambda: tasks_of(world, "boss"))
        assert task.task == "apples"


async def _letters_if_alive(world: World) -> list[dict[str, Any]]:
    try:
        return await letters(world)
    except httpx2.TransportError:
        return []


async def _worn_out(world: World, payload: bytes) -> None:
    """An event that was handed back by gateway after gateway, until it is a suspect."""
    worn = asyncio.Event()

    async def hand_back(delivery: NatsDelivery) -> None:
        if delivery.deliveries == SUSPECT_AFTER_DELIVERIES:
            worn.set()
        await delivery.nak()
        if worn.is_set():
            await queue.drain(0)

    topology = world.topology
    events = topology.below(Subject.EVENT)
    queue = Queue(world.nc, topology.automation_stream, Topology.events_consumer(), events, hand_back, limit=1)
    queue.most_deliveries = ENDLESS
    await queue.start()
    await jetstream.append(world.nc, f"{topology.events_prefix}orders.new", payload)
    await asyncio.wait_for(worn.wait(), 30)
