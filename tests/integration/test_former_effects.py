"""A deployment that was upgraded: what an earlier version claimed or settled counts, and none works beside this one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.errors import SetupError
from cadre.protocol.cards import SUBJECTS, AgentCard, Presence
from cadre.protocol.messages import EffectResult, ToolCall, ToolResult
from cadre.protocol.topology import Subject, Topology, result_id
from cadre.service.older_replicas import await_older_gone
from cadre.settings import Settings
from harness.patience import patience
from integration.executor_bench import TOOLS, Bench

OLDER = Presence(
    instance="old-1", host="here", pid=1, started_at=1.0, agent=AgentCard(name="boss", description="Works.")
)


async def claimed_before(bench: Bench, call: ToolCall, output: str | None = None) -> None:
    """The call was sent, and an executor of an earlier version died in it, or behind its result."""
    claim = replace(bench.new_claim(call), agent="", tool="", call_seq=await bench.publish(call))
    subject = bench.topology.subject(Subject.FORMER_EFFECT, tree=call.tree, call=call.id)
    seq = await jetstream.append(bench.nc, subject, encode(claim), expect=0)
    if output is not None:
        fields = {"tree": call.tree, "run": call.run, "at": 2.0}
        result = ToolResult(id=result_id(call.id), call=call.id, tool=call.tool, output=output, **fields)  # type: ignore[arg-type]
        settled = EffectResult(id=f"{call.id}:effect", claim=claim, claim_seq=seq, result=result, **fields)  # type: ignore[arg-type]
        await jetstream.append(bench.nc, subject, encode(settled), expect=seq)


async def test_what_was_claimed_or_settled_before_an_upgrade_is_honoured(bench: Bench) -> None:
    settled, interrupted = (
        bench.new_call("mark", {"folder": str(bench.folder)}),
        bench.new_call("mark", {"folder": str(bench.folder)}),
    )
    again = bench.staged_call("put")
    await claimed_before(bench, settled, "marked long ago")
    await claimed_before(bench, interrupted)
    await claimed_before(bench, again)
    await bench.start()

    assert (await bench.answer(settled)).output == "marked long ago"
    error = (await bench.answer(interrupted)).error
    assert error is not None
    assert error.type == "Interrupted"
    assert error.message.startswith("outcome unknown: executor gone stopped")
    await (await bench.visit()).let_go("second time")
    assert (await bench.answer(again)).output == "second time"
    assert [bench.effects_of(call) for call in (settled, interrupted, again)] == [0, 0, 1]

    # It is settled from now on as every call is.
    kept = await bench.effects.read(bench.new_claim(interrupted))
    assert kept is not None
    assert kept.result is not None
    assert kept.result.error == error
    await bench.publish(interrupted)
    assert (await bench.answer(interrupted)).error == error
    # New calls of the same tree run, once.
    call = bench.new_call("mark", {"folder": str(bench.folder)}, tree=settled.tree)
    call = replace(call, id=f"{call.tree}_2_0")
    await bench.send(call)
    assert (await bench.answer(call)).output == "marked"
    assert bench.effects_of(call) == 1


async def test_a_call_costs_two_requests_where_no_earlier_version_was(
    bench: Bench, settings: Settings
) -> None:
    nc = await connect(settings, "an executor that does nothing else")
    effects, claim = NatsEffects(nc, bench.topology), bench.new_claim(bench.new_call("mark"))
    await effects.look_for_former()
    about = {"tree": claim.tree, "run": claim.run, "at": 2.0}
    result = ToolResult(id=result_id(claim.call), call=claim.call, tool="mark", **about)  # type: ignore[arg-type]
    before = nc.stats["out_msgs"]
    seq = await effects.claim(claim)
    settled = EffectResult(id="x", claim=claim, claim_seq=seq, result=result, **about)  # type: ignore[arg-type]
    await effects.settle(settled)
    assert nc.stats["out_msgs"] - before == 2
    await nc.close()


@asynccontextmanager
async def registry_of(bench: Bench) -> AsyncIterator[NatsRegistry]:
    registry = NatsRegistry(bench.nc, Topology(bench.topology.shards, bench.topology.prefix))
    await registry.start()
    try:
        yield registry
    finally:
        await registry.withdraw()
        await registry.stop()


async def test_a_service_refuses_to_begin_beside_an_older_replica(bench: Bench) -> None:
    async with registry_of(bench) as registry:
        await registry.announce([replace(OLDER, subjects=SUBJECTS)])
        await await_older_gone(registry, patience())
        await registry.announce([OLDER])
        async with asyncio.timeout(patience()):
            while registry.presences() != [OLDER]:
                await registry.changed()
        with pytest.raises(SetupError, match=r"old-1 on here.*: stop all services of the deployment"):
            await await_older_gone(registry, 1.0)


async def test_a_service_begins_once_the_last_older_replica_has_stopped(bench: Bench) -> None:
    async with registry_of(bench) as older:
        await older.announce([OLDER])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cadre_tools", TOOLS),
            env=bench.environment("executor-new"),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        said = b""
        try:
            async with asyncio.timeout(patience()):
                while b"ready" not in said:
                    line = await process.stderr.readline()
                    assert line, said.decode()
                    said += line
                    if b"waiting for replicas of an earlier version to stop: old-1 on here" in line:
                        assert b"ready" not in said
                        await older.withdraw()
        finally:
            process.kill()
            await process.wait()
        assert b"earlier version" in said
