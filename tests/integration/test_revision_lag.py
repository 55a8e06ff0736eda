"""Tests of what KEDA would read of a real gateway for two revisions of an agent: the backlog of each, a share of the
agent's."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.render import scaled_object
from cadre.deploy.k8s.values import Scale, read_values
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.nats_users import Role
from cadre.protocol.rollout import slot_receiver
from harness.patience import patience, until
from integration.gateway_world import GatewayProcess, World, entered

FIRST, SECOND = "aaaa00000000", "bbbb00000000"
CLERK = Component("agent", "clerk", ["agent"], ["agent-clerk"], is_shared=True)


def presence(revision: str, beside: str) -> Presence:
    card = AgentCard(name="clerk", description="Notes.")
    return Presence(
        instance=revision,
        host="h",
        pid=1,
        started_at=1.0,
        agent=card,
        revision=revision,
        beside=beside,
    )


async def lags(world: World) -> tuple[int, int]:
    """Of the first's Deployment and of the second's, by the rule of KEDA's scaler metrics-api. It has no key."""
    found = []
    for component in (CLERK, CLERK.second("clerk-next")):
        [trigger] = scaled_object(component, read_values(), Scale())["spec"]["triggers"]
        about = trigger["metadata"]
        url = urlsplit(about["url"])
        answer = await world.http.get(f"{url.path}?{url.query}")
        assert answer.status_code == 200, answer.text
        found.append(int(answer.json()[about["valueLocation"]]))
    return found[0], found[1]


async def send(nc: NatsClient, world: World, slot: int, count: int) -> None:
    """Records for the agent's queue, or for that of a revision, of trees on every shard."""
    for number in range(count):
        receiver = slot_receiver("clerk", slot)
        subject = world.topology.inbox(receiver, "gateway", f"t{slot}_{number}", f"t{slot}_{number}")
        await nc.request(subject, b"{}", timeout=patience())


async def shared(world: World, **change: Any) -> dict[str, int]:
    """The slots by revision, once each has its queue and it is known where each revision is."""
    answer = await world.http.post("/v1/agents/clerk/rollout", json=change)
    assert answer.status_code == 200, answer.text

    async def open_() -> bool:
        revisions = (await world.http.get("/v1/agents/clerk/rollout")).json()["revisions"]
        rollout = world.registry.rollout("clerk")
        homes = {one.revision: one.beside for one in rollout.shares} if rollout else {}
        return all(one["state"] == "open" for one in revisions) and homes.get(SECOND) == "clerk-next"

    await until(open_)
    rollout = world.registry.rollout("clerk")
    assert rollout is not None
    return {one.revision: one.slot for one in rollout.shares}


async def test_each_revision_is_scaled_by_its_own_backlog(gateway: GatewayProcess) -> None:
    await provision_roles(gateway.settings, [Role(kind="agent", name="clerk")])
    async with entered(gateway) as world:
        assert await lags(world) == (0, 0)
        await send(world.nc, world, 0, 3)
        assert await lags(world) == (3, 3), "without a rollout any replica takes any record"

        await world.registry.announce([presence(FIRST, ""), presence(SECOND, "clerk-next")])

        async def both_live() -> bool:
            agents = (await world.http.get("/v1/agents")).json()["agents"]
            return sum(len(one["replicas"]) for one in agents if one["name"] == "clerk") == 2

        await until(both_live)
        slots = await shared(world, to=SECOND, weight=25, rest=FIRST)
        await send(world.nc, world, slots[FIRST], 5)
        await send(world.nc, world, slots[SECOND], 7)
        await send(world.nc, world, 0, 5)
        assert await lags(world) == (5 + 6, 7 + 2), "eight lie in the agent's own queue, a quarter for the second"

        # The second one is away: what is new goes to the first, what is its own stays its own.
        await world.registry.announce([presence(FIRST, "")])

        async def second_away() -> bool:
            return await lags(world) == (5 + 8, 7)

        async with asyncio.timeout(patience()):
            await until(second_away)
