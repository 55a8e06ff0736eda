"""Tests of who may answer whom, ways around it that are closed, and those that docs/security.md says are open; a real
server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.connect import NatsClient, connect, settled
from cadre.adapters.nats.handover import NatsHandover
from cadre.adapters.nats.memory import MemoryServer, NatsMemory
from cadre.adapters.nats.peers import NatsPeers, answer_peers
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.fair_limiter import FairLimiter
from cadre.protocol.memory import Stats, StatsRequest
from harness.patience import patience
from integration.secured_world import BOSS, CALL, JOURNAL, RUN, TREE, Secured, T, secured


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


Pair = Callable[[str], Awaitable[tuple[NatsClient, NatsClient]]]


@pytest.fixture
async def pair(world: Secured) -> AsyncIterator[Pair]:
    """Two connections of a user."""
    async with AsyncExitStack() as opened:

        async def open_two(user: str) -> tuple[NatsClient, NatsClient]:
            one, other = [await connect(world.settings(user), "test") for _ in range(2)]
            opened.push_async_callback(one.close)
            opened.push_async_callback(other.close)
            return one, other

        yield open_two


async def test_executors_of_a_tool_ask_one_another(pair: Pair) -> None:
    one, other = await pair("tools-desk")
    await answer_peers(one, T, "look_up", "one", {CALL}.__contains__)
    await settled(one)
    peers = NatsPeers(other, T)
    assert await peers.has_in_hand("look_up", "one", CALL) is True
    assert await peers.has_in_hand("look_up", "one", "t1_1_1") is False
    assert await peers.has_in_hand("look_up", "gone", CALL) is False
    assert await peers.has_in_hand("look_up", "no name of ours", CALL) is False
    # Where permissions are those of a version without questions, it is as it was with that.
    assert await peers.has_in_hand("dig", "one", CALL) is False


async def test_sandboxes_of_a_pool_hand_over_to_one_another(pair: Pair) -> None:
    one, other = await pair("sandbox-default")
    handed: list[tuple[str, bytes]] = []

    async def take(delivery: NatsDelivery) -> bool:
        handed.append((delivery.subject, delivery.data))
        return True

    await NatsHandover(one, T, "default", take).listen(RUN)
    await settled(one)
    code = T.code("default", TREE, RUN)
    delivery = NatsDelivery(other, Msg(other, code, "$JS.ACK.CADRE-0.code-default.1.5.1.170.0", b"x = 1"))
    asking = NatsHandover(other, T, "default", take)
    assert await asking.hand_over(delivery, RUN)
    assert handed == [(code, b"x = 1")]
    assert not await asking.hand_over(delivery, "t5")


async def test_the_memory_service_answers_people_and_nothing_else_of_the_gateways(world: Secured) -> None:
    nc, gateway = [await connect(world.settings(user), "test") for user in ("memory", "gateway")]

    async def stats(_: StatsRequest) -> Stats:
        return Stats(chunks={"run": 7}, pending=False, index="i", embeddings="e", degraded=False, why="")

    await MemoryServer(nc, T, {"stats": stats}).start()
    assert (await NatsMemory(gateway, T).stats()).chunks == {"run": 7}
    async with world.intruder("memory") as intruder:
        refusal = await intruder.publish("_INBOX_gateway.abc.1")
    assert refusal.startswith("nats: permissions violation for publish")
    await nc.close()
    await gateway.close()


EFFECT = T.effect(TREE, CALL, "boss", "dig")

# Subjects that a user both says and hears: by these it can ask itself.
_TO_ITSELF = [
    ("sandbox-default", T.warm("default", TREE, RUN), [JOURNAL, EFFECT]),
    ("sandbox-default", "$KV.cadre-registry.sandbox.default.here", [JOURNAL]),
    ("tools-desk", T.executor("look_up", "here"), [JOURNAL]),
    ("tools-desk", "$KV.cadre-registry.tool.look_up.here", [JOURNAL]),
    ("memory", "$KV.cadre-registry.tool.recall.here", [JOURNAL, EFFECT]),
    ("agent-boss", T.interrupt(TREE), [T.lifecycle(TREE)]),
    ("agent-boss", "$KV.cadre-registry.agent.boss.here", [T.lifecycle(TREE)]),
]


@pytest.mark.parametrize(
    ("user", "subject", "more"), _TO_ITSELF, ids=[f"{user} {subject}" for user, subject, _ in _TO_ITSELF]
)
async def test_nobody_gains_a_right_by_asking_themselves(
    world: Secured, user: str, subject: str, more: list[str]
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        heard.put_nowait(message.reply)

    async with world.intruder(user) as one:
        await one.nc.subscribe(subject, cb=hear)
        for target in (*more, BOSS.format("dig"), "_INBOX_agent-digger.x.1", "$KV.cadre-sessions.boss.s"):
            await one.nc.publish(subject, b"?", reply=target)
            assert await asyncio.wait_for(heard.get(), patience()) == target
            refusal = await one.publish(target, b"{}")
            assert refusal == f'nats: permissions violation for publish to "{target.lower()}"'


# --- what permissions cannot say: docs/security.md lists it, and this is where the list is kept true


async def test_headers_reach_further_than_subjects(tmp_path: Path) -> None:
    """A user who may publish to a shard can, by a header, have the server write elsewhere in it, or empty it."""
    one = Secured(tmp_path)
    one.server.start()
    nc = await connect(one.settings("operator"), "test")
    await provision(nc, one.settings("operator"))
    await jetstream.append(nc, JOURNAL, b"what the boss knows")
    async with one.intruder("tools-desk") as executor:
        own = BOSS.format("look_up")
        forged = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": BOSS.format("dig")}
        arrived = asyncio.Event()

        async def handle(delivery: object) -> None:
            arrived.set()

        queue = Queue(nc, "CADRE-0", "witness", BOSS.format("dig"), handle, limit=FairLimiter(1))
        await queue.start()
        assert "error" not in json.loads(await executor.ask(own, b"{}", **forged))
        await asyncio.wait_for(arrived.wait(), patience())
        await queue.drain(1)
        await executor.ask(own, b"{}", **{"Nats-Rollup": "all"})
    assert await jetstream.last(nc, T.stream(0), JOURNAL) is None
    await nc.close()
    one.server.stop()


async def test_the_server_answers_where_it_is_told_to(world: Secured) -> None:
    """No one checks whether who asks might publish there: what a user has stored can so come to any subject."""
    victim, effect = T.journal("t7", "t7"), T.effect("t7", "c", "boss", "look_up")
    nc = await connect(world.settings("operator"), "test")
    async with world.intruder("tools-desk") as executor:
        await executor.ask(effect, b"in the agent's name")
        await executor.nc.publish(f"$JS.API.DIRECT.GET.CADRE-0.{effect}", reply=victim)
        await settled(executor.nc)
    async with asyncio.timeout(patience()):
        while (found := await jetstream.last(nc, T.stream(0), victim)) is None:  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.02)
    assert found.data == b"in the agent's name"
    await nc.close()
