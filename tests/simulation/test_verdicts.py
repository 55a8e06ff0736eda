"""What executors make of calls that come to them half done, each case played by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import NamedTuple

from cadre.delivery.codec import encode
from cadre.delivery.quarantine import MAX_CRASHES_ALONE, SUSPECT_AFTER_DELIVERIES
from cadre.errors import BusUnavailable
from cadre.ports import QuarantineRecord
from cadre.protocol.messages import EffectClaim, EffectResult, ToolCall, ToolResult
from cadre.runtime.executor import Executor
from cadre.runtime.in_hand import InHand
from cadre.testing.in_memory_ports import InMemoryEffects
from simulation.loop import Process
from simulation.peers import SimPeers
from simulation.queue import SimDelivery
from simulation.server import Message
from simulation.tools import TOOLS, shelf
from simulation.workers import Connection, Parts
from simulation.world import World

CALL = ToolCall(
    id="r0_1_0",
    tree="r0",
    run="r0",
    at=0.0,
    agent="lead",
    tool="book",
    arguments={"n": 1, "seconds": 30.0},
)


def convict(world: World, *, kept: ToolResult | None) -> ToolResult:
    """The result that an executor sends for a call that two processes have died of."""
    world.faults.left = 0
    process = Process("tools")
    ports = process.context.run(Connection, world, process)
    in_hand = InHand("tools", ports.effects, SimPeers(world, ports.wire))
    executor = Executor(ports.effects, ports.bus, ports.blobs, in_hand, ports.quarantine, ports.clock)
    stream = world.server.streams[world.topology.shard("r0")]
    seq = stream.append(world.topology.call("book", "lead", "r0", CALL.id), encode(CALL))
    message: Message = stream.messages[seq]
    delivery = SimDelivery(ports.wire, stream.consumer("call", "book"), message, SUSPECT_AFTER_DELIVERIES + 3)

    async def handle() -> None:
        claim = EffectClaim(
            id=f"{CALL.id}:claim", tree="r0", run="r0", at=0.0, call=CALL.id, executor="dead", call_seq=seq
        )
        claimed = await ports.effects.claim(claim)
        if kept is not None:
            effect = EffectResult(
                id=f"{CALL.id}:effect",
                tree="r0",
                run="r0",
                at=0.0,
                claim=claim,
                claim_seq=claimed,
                result=kept,
            )
            await ports.effects.settle(effect)
        await ports.quarantine.write("r0", QuarantineRecord(seq=seq, attempts_alone=MAX_CRASHES_ALONE), 0)
        await executor.handle(TOOLS["book"], delivery)

    world.loop.spawn(process, handle())
    world.loop.run(world)
    (sent,) = world.history.runs["r0"].records[f"{CALL.id}:result"]
    assert isinstance(sent, ToolResult)
    return sent


def test_a_kept_result_is_told_whatever_its_executors_died_of() -> None:
    kept = ToolResult(
        id=f"{CALL.id}:result", tree="r0", run="r0", at=0.0, call=CALL.id, tool="book", output="done"
    )
    assert convict(World(1, Parts()), kept=kept) == kept


def test_a_refusal_is_kept_so_that_a_zombie_tells_the_same() -> None:
    world = World(1, Parts())
    refused = convict(world, kept=None)
    assert refused.error is not None
    assert refused.error.type == "Poisoned"
    last = world.history.effects[CALL.id][-1]
    assert isinstance(last, EffectResult)
    assert last.result == refused


class LosesItsConnection(InMemoryEffects):
    """Behind the first claim that it has stored."""

    lost = False

    async def claim(self, claim: EffectClaim) -> int:
        seq = await super().claim(claim)
        if not self.lost:
            self.lost = True
            raise BusUnavailable("claiming", "the connection went")
        return seq


class Alone(NamedTuple):
    """One executor in a quiet world."""

    world: World
    process: Process
    ports: Connection
    in_hand: InHand
    executor: Executor

    def play(self, work: Coroutine[None, None, None]) -> None:
        done = self.world.loop.spawn(self.process, work)
        self.world.loop.run(self.world)
        done.result()

    def deliver(self, *, retried: bool = False) -> SimDelivery:
        stream = self.world.server.streams[self.world.topology.shard("r0")]
        subject = self.world.topology.call("book", "lead", "r0", CALL.id)
        seq = stream.append(subject, encode(CALL), retried=retried)
        consumer = stream.consumer("call", "book")
        return SimDelivery(self.ports.wire, consumer, stream.messages[seq], 1)

    def results(self) -> list[ToolResult]:
        records = self.world.history.runs["r0"].records[f"{CALL.id}:result"]
        return [one for one in records if isinstance(one, ToolResult)]


def alone(parts: Parts) -> Alone:
    world = World(1, parts)
    world.faults.left = 0
    process = Process("tools")
    process.context.run(shelf.set, world.shelf)
    ports = process.context.run(Connection, world, process)
    in_hand = InHand("tools", ports.effects, SimPeers(world, ports.wire))
    executor = Executor(ports.effects, ports.bus, ports.blobs, in_hand, ports.quarantine, ports.clock)
    return Alone(world, process, ports, in_hand, executor)


def test_a_call_that_is_in_work_here_is_not_taken_for_left_by_a_dead_executor() -> None:
    one = alone(Parts())

    async def handle() -> None:
        at_work = asyncio.create_task(one.executor.handle(TOOLS["book"], one.deliver()))
        while CALL.id not in one.world.shelf.begun:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.01)
        again = one.deliver(retried=True)
        await one.executor.handle(TOOLS["book"], again)
        assert not again.settled
        await at_work
        assert not one.in_hand.has(CALL.id)
        await one.executor.handle(TOOLS["book"], again)
        assert again.settled

    one.play(handle())
    assert {result.output for result in one.results()} == {"done 1"}
    assert one.world.shelf.done == {CALL.id: 1}


def test_a_claim_that_is_stored_and_got_no_answer_is_insisted_on() -> None:
    one = alone(Parts(effects=LosesItsConnection))
    one.play(one.executor.handle(TOOLS["book"], one.deliver()))
    (result,) = one.results()
    assert (result.output, result.error) == ("done 1", None)
    assert one.world.shelf.done == {CALL.id: 1}
    assert not one.in_hand.has(CALL.id)


def test_a_call_that_was_claimed_and_dropped_is_not_in_hand() -> None:
    one = alone(Parts(effects=LosesItsConnection))
    effects = one.ports.effects
    assert isinstance(effects, LosesItsConnection)

    async def handle() -> None:
        delivery = one.deliver()
        dropped = asyncio.create_task(one.executor.handle(TOOLS["book"], delivery))
        while not effects.lost:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.01)
        assert one.in_hand.has(CALL.id)
        dropped.cancel()
        await asyncio.wait({dropped})
        assert not one.in_hand.has(CALL.id)
        await one.executor.handle(TOOLS["book"], delivery)

    one.play(handle())
    (result,) = one.results()
    assert result.error is not None
    assert result.error.type == "Interrupted"
    assert not one.world.shelf.begun
