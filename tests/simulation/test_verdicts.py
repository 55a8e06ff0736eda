"""What the simulation found in the executor: a call given up as poison whose result had been kept already."""

from __future__ import annotations

from cadre.messages import EffectClaim, EffectResult, ToolCall, ToolResult
from cadre.ports import Mark
from cadre.trial import ALONE, SUSPECT_AFTER
from cadre.wire import encode
from cadre_tools.executor import Executor
from simulation.loop import Process
from simulation.queue import SimDelivery
from simulation.server import Message
from simulation.tools import TOOLS
from simulation.workers import Connection, Parts
from simulation.world import World

CALL = ToolCall(
    id="r0_1_0",
    tree="r0",
    run="r0",
    at=0.0,
    agent="lead",
    tool="book",
    arguments={"n": 1, "seconds": 1.0},
)


def convict(world: World, *, kept: ToolResult | None) -> ToolResult:
    """The result that an executor sends for a call that two processes have died of."""
    world.faults.left = 0
    process = Process("tools")
    ports = process.context.run(Connection, world, process)
    executor = Executor(ports.effects, ports.bus, ports.blobs, "tools", ports.marks, ports.clock)
    stream = world.server.streams[world.topology.shard("r0")]
    seq = stream.append(world.topology.call("book", "lead", "r0", CALL.id), encode(CALL))
    message: Message = stream.messages[seq]
    delivery = SimDelivery(ports.wire, stream.consumer("call", "book"), message, SUSPECT_AFTER + 3)

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
        await ports.marks.write("r0", Mark(seq=seq, alone=ALONE), 0)
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
