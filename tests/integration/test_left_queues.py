"""Queues that retired services leave behind go after an hour, and those of services that are provisioned again stay."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.adapters.nats.queues.left_queues import NatsLeftQueues
from cadre.adapters.nats.registry import NatsRegistry, retire
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.streams import jetstream
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cadre_gateway.reading.left_queues import RETIRED_SECONDS, LeftQueues
from harness.nats_server import NatsServer
from harness.patience import patience, until

NOW = 1_000_000.0
CLERK, POOL = ServiceKey("agent", "clerk"), ServiceKey("sandbox", "den")
ROLES = [Role(kind="agent", name="clerk"), Role(kind="sandbox", name="den")]


class Clock:
    def now(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing here waits: {seconds}")


class World(NamedTuple):
    nc: NatsClient
    topology: Topology
    provision: Callable[[], Awaitable[object]]
    registry: NatsRegistry
    left: LeftQueues

    async def names(self) -> set[str]:
        return {one.name for one in await self.left.list()}

    async def retire(self, service: ServiceKey, seconds_ago: float) -> None:
        await retire(self.nc, self.topology, service, NOW - seconds_ago)
        await self.noticed(lambda: self.registry.retired().get(service) == NOW - seconds_ago)

    async def noticed(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await until(holds)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with NatsServer(tmp_path) as server:
        settings = Settings(nats_url=server.url, shards=2)
        topology = await provision_roles(settings, ROLES)
        nc = await connect(settings, "test")
        registry = NatsRegistry(nc, topology)
        await registry.start()
        to_retire = partial(retire, nc, topology, now=NOW)
        left = LeftQueues(NatsLeftQueues(nc, topology), registry, Clock(), to_retire)
        yield World(nc, topology, partial(provision_roles, settings, ROLES), registry, left)
        await registry.stop()
        await nc.close()


async def test_a_retired_service_keeps_its_queue_for_an_hour(world: World) -> None:
    everything = {"clerk", "den", "python_interpreter_den"}
    assert await world.names() == everything
    await world.left.sweep()
    assert await world.names() == everything, "nothing was retired"
    await world.retire(CLERK, RETIRED_SECONDS - 1)
    await world.retire(POOL, RETIRED_SECONDS)
    await world.left.sweep()
    assert await world.names() == everything - {"den"}
    await world.retire(CLERK, RETIRED_SECONDS)
    await world.left.sweep()
    assert await world.names() == {"python_interpreter_den"}
    for shard in range(world.topology.shards):
        found = await jetstream.consumers(world.nc, world.topology.stream(shard))
        assert {one["name"] for one in found} == {"tool-python_interpreter_den"}


async def test_a_queue_with_a_message_stays(world: World) -> None:
    await jetstream.append(world.nc, inbox(world.topology), b"{}")
    await world.retire(CLERK, 2 * RETIRED_SECONDS)
    await world.left.sweep()
    assert {one.name: one.waiting for one in await world.left.list()}["clerk"] == 1


async def test_a_service_that_is_provisioned_again_keeps_its_queue(world: World) -> None:
    await world.retire(CLERK, 2 * RETIRED_SECONDS)
    await world.provision()
    await world.noticed(lambda: CLERK not in world.registry.retired())
    await world.left.sweep()
    assert "clerk" in await world.names()


async def test_a_queue_that_is_removed_while_its_service_is_provisioned_is_made_again(world: World) -> None:
    """The marker is gone by the time that the queue is; what was handled is not delivered again."""
    subject = inbox(world.topology)
    handled = await jetstream.append(world.nc, subject, b"{}")
    first = await pulled(world)
    assert first.metadata.sequence.stream == handled
    await first.ack()
    await world.nc.flush()

    assert not await NatsLeftQueues(world.nc, world.topology).remove(CLERK)

    assert "clerk" in await world.names()
    later = await jetstream.append(world.nc, subject, b"{}")
    assert (await pulled(world)).metadata.sequence.stream == later


async def pulled(world: World) -> Msg:
    """Return the next message of the clerk's queue on shard 0, which comes with the subject that it was sent to."""
    inbox = world.nc.new_inbox()
    listening = await world.nc.subscribe(inbox)
    consumer = f"{world.topology.stream(0)}.{world.topology.agent_consumer('clerk')}"
    asking = b'{"batch":1,"expires":5000000000}'
    await world.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", asking, reply=inbox)
    message = await listening.next_msg(timeout=patience())
    await listening.unsubscribe()
    return message


def inbox(topology: Topology) -> str:
    return topology.inbox_filter(0, "clerk").replace("*", "any").replace(">", "any")
