"""Attempts at all that the NATS user of a service must not do, on a real server by somebody who has its key."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.dead_letters import NatsDeadLetters, NatsQuarantine
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.object_store import NatsSnapshots
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import NotPermitted, SetupError
from cadre.ports import QuarantineRecord
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.messages import (
    EffectClaim,
    Erased,
)
from cadre.protocol.topology import Subject
from cadre.settings import Settings
from harness.patience import patience
from integration.secured_world import BOSS, CALL, JOURNAL, RUN, TREE, Secured, T, secured


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as one:
        asyncio.run(_fill(one))
        yield one


async def _fill(world: Secured) -> None:
    """Something to steal."""
    async with world.intruder("operator") as operator:
        await operator.ask(JOURNAL, b"what the boss knows")
        await operator.ask(T.call("dig", "digger", TREE, CALL), b"a call")
        await operator.ask(T.inbox("digger", "boss", TREE, RUN), b"a task")


CONSUMER = json.dumps({"stream_name": "CADRE-0", "config": {"name": "spy", "ack_policy": "none"}}).encode()
DURABLE = json.dumps({"stream_name": "CADRE-0", "config": {"durable_name": "tool-dig", "ack_policy": "none"}}).encode()
BY_SUBJECT = json.dumps({"last_by_subj": JOURNAL}).encode()

SEED = T.subject(Subject.SEED, shard=0, pool="heavy")
GET = "$JS.API.DIRECT.GET.CADRE-0."

# Who, what for, the subject, the payload.
PUBLISHES = [
    # An executor and the journals: every way that JetStream has of reading.
    ("tools-desk", "reads a journal of the leader", "$JS.API.STREAM.MSG.GET.CADRE-0", BY_SUBJECT),
    ("tools-desk", "reads a journal of a replica", "$JS.API.DIRECT.GET.CADRE-0", BY_SUBJECT),
    ("tools-desk", "reads a journal by its subject", f"$JS.API.DIRECT.GET.CADRE-0.{JOURNAL}", b""),
    ("tools-desk", "reads the shard's last message", "$JS.API.DIRECT.GET.CADRE-0.>", b""),
    ("tools-desk", "reads any kind's last message", f"$JS.API.DIRECT.GET.CADRE-0.cadre.*.0.{TREE}.>", b""),
    ("tools-desk", "makes a consumer", "$JS.API.CONSUMER.CREATE.CADRE-0.spy", CONSUMER),
    ("tools-desk", "makes a filtered one", "$JS.API.CONSUMER.CREATE.CADRE-0.spy.cadre.run.0.>", CONSUMER),
    ("tools-desk", "makes a durable one", "$JS.API.CONSUMER.DURABLE.CREATE.CADRE-0.spy", CONSUMER),
    ("tools-desk", "pulls the tracer's journals", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.tracer", b"1"),
    ("tools-desk", "takes a snapshot", "$JS.API.STREAM.SNAPSHOT.CADRE-0", b"{}"),
    ("tools-desk", "lists the consumers", "$JS.API.CONSUMER.LIST.CADRE-0", b"{}"),
    # An executor and the work of others.
    ("tools-desk", "pulls another tool's calls", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.tool-dig", b"1"),
    (
        "tools-desk",
        "acks another tool's call",
        "$JS.ACK.CADRE-0.tool-dig.1.2.1.1700000000000000000.0",
        b"+ACK",
    ),
    ("tools-desk", "changes another tool's queue", "$JS.API.CONSUMER.CREATE.CADRE-0.tool-dig", DURABLE),
    ("tools-desk", "answers for another tool", BOSS.format("dig"), b"{}"),
    ("tools-desk", "answers as an agent", BOSS.format("digger"), b"{}"),
    ("tools-desk", "answers as the sandbox", BOSS.format("sandbox"), b"{}"),
    ("tools-desk", "decides as a person", BOSS.format("gateway"), b"{}"),
    ("tools-desk", "fires a timer", BOSS.format("timer"), b"{}"),
    ("tools-desk", "calls a tool", T.call("dig", "look_up", TREE, CALL), b"{}"),
    ("tools-desk", "writes a journal", JOURNAL, b"{}"),
    ("tools-desk", "erases a tree", T.lifecycle(TREE), b"{}"),
    ("tools-desk", "sets a timer", T.timer(TREE, RUN, "x"), b"{}"),
    ("tools-desk", "poses as another tool", "$KV.cadre-registry.tool.dig.here", b"{}"),
    ("tools-desk", "poses as an agent", "$KV.cadre-registry.agent.boss.here", b"{}"),
    ("tools-desk", "moves a session", "$KV.cadre-sessions.boss.s", b"{}"),
    ("tools-desk", "writes an answer of the server", "_INBOX_agent-boss.x.1", b"{}"),
    ("tools-desk", "asks the memory service", T.memory("export"), b"{}"),
    ("tools-desk", "interrupts a run", T.interrupt(TREE), b"t1"),
    ("tools-desk", "settles another tool's call", T.effect(TREE, CALL, "boss", "dig"), b"{}"),
    ("tools-desk", "reads another tool's effect", f"{GET}{T.effect(TREE, CALL, 'boss', 'dig')}", b""),
    ("tools-desk", "asks another tool's executor", T.executor("dig", "here"), b"t1_1_0"),
    # A sandbox.
    ("sandbox-default", "publishes a task as an agent", BOSS.format("digger"), b"{}"),
    ("sandbox-default", "publishes a task as the gateway", BOSS.format("gateway"), b"{}"),
    ("sandbox-default", "calls a tool", T.call("dig", "sandbox", TREE, CALL), b"{}"),
    ("sandbox-default", "hands out code", T.code("default", TREE, RUN), b"{}"),
    ("sandbox-default", "settles a call", T.effect(TREE, CALL, "boss", "dig"), b"{}"),
    ("sandbox-default", "writes a file of a workspace", T.file(TREE, "a.txt"), b"{}"),
    ("sandbox-default", "replaces another pool's secret", SEED, b"{}"),
    ("sandbox-default", "reads another pool's secret", f"$JS.API.DIRECT.GET.CADRE-0.{SEED}", b""),
    ("sandbox-default", "reads a journal", "$JS.API.STREAM.MSG.GET.CADRE-0", BY_SUBJECT),
    ("sandbox-default", "reads an effect", f"{GET}{T.effect(TREE, CALL, 'boss', 'dig')}", b""),
    ("sandbox-default", "pulls an agent's inbox", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.agent-boss", b"1"),
    # An agent.
    ("agent-boss", "pulls another agent's inbox", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.agent-digger", b"1"),
    ("agent-boss", "acks it", "$JS.ACK.CADRE-0.agent-digger.1.3.1.1700000000000000000.0", b"+ACK"),
    ("agent-boss", "makes a consumer of the journals", "$JS.API.CONSUMER.CREATE.CADRE-0.spy", CONSUMER),
    ("agent-boss", "sends as another agent", T.inbox("digger", "digger", TREE, RUN), b"{}"),
    ("agent-boss", "asks an executor", T.executor("look_up", "here"), b"t1_1_0"),
    ("agent-boss", "approves its own call", BOSS.format("gateway"), b"{}"),
    ("agent-boss", "calls a tool that its file does not name", T.call("dig", "boss", TREE, CALL), b"{}"),
    ("agent-boss", "calls a tool as another", T.call("dig", "digger", TREE, CALL), b"{}"),
    ("agent-boss", "settles another's call", T.effect(TREE, CALL, "digger", "look_up"), b"{}"),
    ("agent-boss", "erases a tree", T.lifecycle(TREE), b"{}"),
    ("agent-boss", "purges the journals", "$JS.API.STREAM.PURGE.CADRE-0", b"{}"),
    ("agent-boss", "removes a message", "$JS.API.STREAM.MSG.DELETE.CADRE-0", b'{"seq":1}'),
    ("agent-boss", "reads the sessions", "$JS.API.STREAM.MSG.GET.KV_cadre-sessions", b'{"seq":1}'),
    # The rest.
    ("memory", "reads a journal", "$JS.API.STREAM.MSG.GET.CADRE-0", BY_SUBJECT),
    ("memory", "answers for a tool", BOSS.format("dig"), b"{}"),
    ("tracer", "writes a journal", JOURNAL, b"{}"),
    ("tracer", "stores a blob", "$O.cadre-blobs.C.x", b"{}"),
    ("tracer", "pulls a tool's calls", "$JS.API.CONSUMER.MSG.NEXT.CADRE-0.tool-dig", b"1"),
    ("agent-boss", "makes a schedule", T.definition("schedule", "daily"), b"{}"),
    ("tools-desk", "has a schedule be due", T.due("daily"), b"daily"),
    ("gateway", "deletes a stream", "$JS.API.STREAM.DELETE.CADRE-0", b"{}"),
    ("gateway", "changes a stream", "$JS.API.STREAM.UPDATE.CADRE-0", b"{}"),
    ("gateway", "makes a stream", "$JS.API.STREAM.CREATE.MINE", b'{"name":"MINE","subjects":["mine"]}'),
    ("gateway", "poses as an agent", "$KV.cadre-registry.agent.boss.here", b"{}"),
]


@pytest.mark.parametrize(("user", "does", "subject", "data"), PUBLISHES, ids=[f"{p[0]} {p[1]}" for p in PUBLISHES])
async def test_it_is_refused(world: Secured, user: str, does: str, subject: str, data: bytes) -> None:
    async with world.intruder(user) as one:
        refusal = await one.publish(subject, data)
    assert refusal == f'nats: permissions violation for publish to "{subject.lower()}"'


EARS = [
    ("tools-desk", ">"),
    ("tools-desk", "cadre.>"),
    ("tools-desk", "cadre.run.>"),
    ("tools-desk", "cadre.in.>"),
    ("tools-desk", "cadre.delta.>"),
    ("tools-desk", "_INBOX_agent-boss.>"),
    ("tools-desk", "_INBOX.>"),
    ("tools-desk", "cadre.executor.>"),
    ("tools-desk", "cadre.executor.dig.*"),
    ("tools-desk", "$KV.cadre-sessions.>"),
    ("tools-desk", "$O.cadre-blobs.>"),
    ("tools-desk", "$JS.>"),
    ("sandbox-default", "cadre.call.>"),
    ("sandbox-default", "cadre.warm.other.>"),
    ("sandbox-default", "cadre.memory.*"),
    ("agent-boss", "cadre.in.0.digger.>"),
    ("agent-boss", "_INBOX_agent-digger.>"),
    ("memory", "cadre.call.0.dig.>"),
    ("gateway", ">"),
]


@pytest.mark.parametrize(("user", "subject"), EARS)
async def test_it_hears_nothing_of_it(world: Secured, user: str, subject: str) -> None:
    async with world.intruder(user) as one:
        refusal = await one.listen(subject)
    assert refusal.startswith(f'nats: permissions violation for subscription to "{subject.lower()}"')


@pytest.mark.parametrize("user", ["gateway", "agent-boss", "tools-desk", "sandbox-default", "memory", "tracer"])
async def test_nobody_but_the_operator_removes_a_stream(world: Secured, user: str) -> None:
    streams = ("CADRE-0", "CADRE-DEAD", "KV_cadre-registry", "KV_cadre-sessions", "OBJ_cadre-blobs")
    async with world.intruder(user) as one:
        for stream in streams:
            refusal = await one.publish(f"$JS.API.STREAM.DELETE.{stream}", b"{}")
            assert refusal.startswith("nats: permissions violation")
    nc = await connect(world.settings("operator"), "test")
    for stream in streams:
        assert "error" not in await jetstream.api(nc, f"STREAM.INFO.{stream}")
    await nc.close()


# --- what they may do, they can


async def test_an_executor_claims_marks_and_keeps_files_without_reading_anything_else(world: Secured) -> None:
    nc = await connect(world.settings("tools-desk"), "test")
    effects, quarantine, files = NatsEffects(nc, T), NatsQuarantine(nc, T), NatsFileIndex(nc, T)
    place = {"tree": "t2", "run": "t2", "call": "c", "agent": "boss", "tool": "look_up"}
    claim = EffectClaim(id="c:claim", at=0.0, executor="here", call_seq=1, **place)  # type: ignore[arg-type]
    await effects.check_right("_", "look_up")
    with pytest.raises(NotPermitted, match=r"may not publish to cadre\.effect"):
        await effects.check_right("_", "dig")
    assert await effects.read(claim) is None
    seq = await effects.claim(claim)
    found = await effects.read(claim)
    assert found is not None
    assert (found.claim, found.seq) == (claim, seq)

    fence = await quarantine.write("t2", QuarantineRecord(seq=9, in_group=True), 0)
    assert await quarantine.read("t2", 9) == (QuarantineRecord(seq=9, in_group=True), fence)
    await quarantine.clear("t2", 9)
    cleared = await quarantine.read("t2", 9)
    assert cleared is None or cleared[0] == QuarantineRecord(seq=9)
    assert await quarantine.write("t2", QuarantineRecord(seq=9, attempts_alone=1), cleared[1] if cleared else 0)

    assert await files.all("t2") == []
    record = WorkspaceFile(id="t2:file:a.txt:1", tree="t2", run="t2", at=0.0, path="a.txt", version=1, ref="blob:x")
    await files.write(record, 0)
    assert await files.all("t2") == [record]

    with pytest.raises(NotPermitted, match=r"may not publish to \$JS\.API\.STREAM\.MSG\.GET\.CADRE-0"):
        await jetstream.read(nc, "CADRE-0", 1)
    await nc.close()


async def test_blobs_of_any_size_can_be_kept_and_read_by_an_executor(world: Secured) -> None:
    nc = await connect(world.settings("tools-desk"), "test")
    blobs = NatsBlobs(nc, T)
    data = bytes(range(256)) * 2048
    ref = await blobs.put(data)
    assert await NatsBlobs(nc, T).get(ref) == data
    assert await blobs.put(data) == ref
    await nc.close()


async def test_who_may_not_remove_a_blob_takes_back_its_own_copy_and_the_gateway_sweeps_up_behind(
    world: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc, gateway = [await connect(world.settings(user), "test") for user in ("tools-desk", "gateway")]
    data = bytes(range(255)) * 2048
    bucket = f"OBJ_{T.blob_bucket}"

    async def stored() -> tuple[int, int]:
        state = (await jetstream.api(nc, f"STREAM.INFO.{bucket}"))["state"]
        return state["messages"], state["bytes"]

    before, bytes_before = await stored()
    ref, *_ = await asyncio.gather(*(NatsBlobs(nc, T).put(data) for _ in range(3)))
    assert len(data) < (await stored())[1] - bytes_before < 1.1 * len(data)
    monkeypatch.setattr("cadre.adapters.nats.blobs.YOUNG_SECONDS", -60.0)
    assert await NatsBlobs(gateway, T).sweep() == 2
    assert await NatsBlobs(nc, T).get(ref) == data
    assert await NatsBlobs(gateway, T).remove(ref)
    assert (await stored())[0] == before
    await nc.close()
    await gateway.close()


async def test_the_gateway_keeps_its_list_and_erases_a_tree(world: Secured) -> None:
    nc = await connect(world.settings("gateway"), "test")
    images = NatsSnapshots(nc, T)
    assert await images.load("list") is None
    for data in (b"x" * 300_000, b"y" * 10):
        await images.save("list", data)
        assert await images.load("list") == data
    await NatsSnapshots(nc, T).save("list", b"")

    operator = await connect(world.settings("operator"), "test")
    journal = T.journal("t9", "t9")
    await jetstream.append(operator, journal, b"{}")
    erasure = NatsErasure(nc, T, NatsBlobs(nc, T))
    lifecycle = await erasure.record(Erased(id="t9:lifecycle", tree="t9", run="t9", at=0.0), 0)
    await erasure.awaited("t9")
    await erasure.purge("t9", lifecycle)
    assert await jetstream.last(operator, T.stream(0), journal) is None
    assert await NatsDeadLetters(nc, T).newest(5) == []
    await nc.close()
    await operator.close()


async def test_a_refused_request_is_answered_at_once_and_named(world: Secured) -> None:
    nc = await connect(world.settings("agent-boss"), "test")
    async with asyncio.timeout(jetstream.ANSWER_SECONDS - 1):
        with pytest.raises(NotPermitted) as refused:
            await jetstream.append(nc, T.inbox("digger", "digger", TREE, RUN), b"{}")
        assert refused.value.subject == T.inbox("digger", "digger", TREE, RUN)
    await nc.close()


async def test_services_find_what_the_operator_made(world: Secured) -> None:
    nc = await connect(world.settings("tools-yard"), "test")
    assert (await provision(nc, world.settings("tools-yard"))).shards == 1
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def handle(delivery: object) -> None:
        arrived.set_result(delivery.data)  # type: ignore[attr-defined]
        await delivery.ack()  # type: ignore[attr-defined]

    queue = Queue(nc, "CADRE-0", "tool-dig", T.call_filter(0, "dig"), handle, limit=FairLimiter(1))
    await queue.start()
    assert await asyncio.wait_for(arrived, patience()) == b"a call"
    await queue.drain(5)
    await nc.close()


async def test_what_is_missing_is_said_with_what_to_do(world: Secured) -> None:
    nc = await connect(world.settings("tools-desk"), "test")
    with pytest.raises(NotPermitted):
        await provision(nc, Settings(nats_url=world.server.url, prefix="other", shards=1))

    async def handle(_: object) -> None: ...

    # A user whose queue no one has made: the permission is there, the consumer is not.
    operator = await connect(world.settings("operator"), "test")
    assert (await jetstream.api(operator, "CONSUMER.DELETE.CADRE-0.tool-look_up"))["success"]
    queue = Queue(nc, "CADRE-0", "tool-look_up", T.call_filter(0, "look_up"), handle, limit=FairLimiter(1))
    with pytest.raises(SetupError, match=r"consumer tool-look_up on CADRE-0 does not exist.*cadre provision"):
        await queue.start()
    await nc.close()
    await operator.close()


# --- wrong and missing keys


async def test_prompts_to_agents_on_nats_are_erased_by_those_who_may(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway without the right, given out before there was one, goes on without it."""
    config = {"name": "CADRE-REMOTE", "subjects": ["cadre.remote.>"], "storage": "file"}
    prompt = "cadre.remote.far.t-1.1.prompt"
    operator = await connect(world.settings("operator"), "operator")
    gateway = await connect(world.settings("gateway"), "gateway")
    boss = await connect(world.settings("agent-boss"), "boss")
    try:
        await jetstream.ask(operator, "making it", "STREAM.CREATE.CADRE-REMOTE", config)
        await jetstream.append(operator, prompt, b"a secret")
        await jetstream.append(operator, "cadre.remote.far.t-2.1.prompt", b"another run's")

        async def left() -> int:
            found = await jetstream.stream_info(operator, "CADRE-REMOTE")
            assert found is not None
            kept: int = found["state"]["messages"]
            return kept

        await NatsErasure(boss, T, NatsBlobs(boss, T)).drop_exchanges(["t-1"])
        assert await left() == 2
        assert "CADRE-REMOTE" in caplog.text
        await NatsErasure(gateway, T, NatsBlobs(gateway, T)).drop_exchanges(["t-1", "t-9"])
        assert await left() == 1
    finally:
        for nc in (operator, gateway, boss):
            await nc.close()
