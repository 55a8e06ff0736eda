"""Tests of what the loop relies on of the bus: timers that an append removes, calls that are settled before they
begin."""

import asyncio
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from msgspec.structs import replace

from cadre.adapters.nats.connection.connect import connect, settled
from cadre.adapters.nats.effects import NatsEffects
from cadre.delivery.codec import unpack_record
from cadre.engine.commands import Revoke
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import CancelRequested
from cadre.protocol.messages import EffectResult, ErrorInfo, TimerFired, ToolResult
from cadre.protocol.topology import timer_id
from cadre.service.platform import Platform, open_platform
from cadre.settings import Settings
from harness.patience import patience


@pytest.fixture
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    one = await open_platform("promises", settings)
    yield one
    await one.registry.stop()
    await one.nc.close()


def entry(tree: str, n: int = 1) -> Entry:
    return Entry(
        arrived=ArrivalRecord("Task"),
        run=tree,
        agent="boss",
        n=n,
        cause=f"c{n}",
        at=time.time(),
        events=[CancelRequested()],
    )


def timer(tree: str, name: str) -> TimerFired:
    return TimerFired(id=timer_id(tree, name), tree=tree, run=tree, at=time.time(), name=name)


def revocation(call: str) -> EffectResult:
    result = ToolResult(
        id=f"{call}:result",
        tree=call.partition("_")[0],
        run=call.partition("_")[0],
        at=time.time(),
        call=call,
        tool="add",
        error=ErrorInfo("cancelled", "not begun"),
    )
    return Revoke(result).effect("boss")


class Inbox:
    """Messages that arrive for the agent `boss`, as the stream stores it."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.names: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        topology = self._platform.topology

        async def note(message: object) -> None:
            record = await unpack_record(message.data, self._platform.blobs)  # type: ignore[attr-defined]
            assert isinstance(record, TimerFired)
            self.names.put_nowait(record.name)

        # A stored schedule is not published: only what the server makes of it when it is due.
        for shard in range(topology.shards):
            await self._platform.nc.jetstream().subscribe(topology.inbox_filter(shard, "boss"), cb=note)


async def test_an_append_removes_the_timer_it_names_and_no_other(platform: Platform) -> None:
    inbox = Inbox(platform)
    await inbox.listen()
    tree, due = uuid4().hex, time.time() + 2.0
    for name in ("deadline", "call-1", "call-2"):
        await platform.bus.schedule(timer(tree, name), "boss", due)
    await platform.journal.append(entry(tree), 0, ends_timer="call-1")
    heard = {await asyncio.wait_for(inbox.names.get(), patience()) for _ in range(2)}
    assert heard == {"deadline", "call-2"}
    await platform.bus.schedule(timer(tree, "last"), "boss", time.time() + 0.1)
    assert await asyncio.wait_for(inbox.names.get(), patience()) == "last", "call-1 never came"


async def test_an_append_may_name_a_timer_that_was_never_set_or_has_gone_off(platform: Platform) -> None:
    inbox = Inbox(platform)
    await inbox.listen()
    tree = uuid4().hex
    appended = await platform.journal.append(entry(tree), 0, ends_timer="never-set")
    await platform.bus.schedule(timer(tree, "gone"), "boss", time.time() + 0.1)
    assert await asyncio.wait_for(inbox.names.get(), patience()) == "gone"
    await platform.journal.append(entry(tree, 2), appended.seq, ends_timer="gone")
    assert len(await platform.journal.read(tree, tree)) >= 1


async def test_a_timer_whose_time_has_passed_goes_off_at_once(platform: Platform) -> None:
    inbox = Inbox(platform)
    await inbox.listen()
    await platform.bus.schedule(timer(uuid4().hex, "late"), "boss", time.time() - 60)
    assert await asyncio.wait_for(inbox.names.get(), patience()) == "late"


async def test_a_revoked_call_has_its_result_before_anybody_claims_it(platform: Platform) -> None:
    effects = NatsEffects(platform.nc, platform.topology)
    tree = uuid4().hex
    revoked = revocation(f"{tree}_1_0")
    await platform.bus.revoke(revoked)
    await platform.bus.revoke(revoked)
    found = await effects.read(revoked.claim)
    assert found is not None
    assert found.result is not None
    assert found.result.error is not None
    assert found.result.error.type == "Cancelled"


async def test_a_claimed_call_is_left_to_its_executor_who_is_told_to_stop(platform: Platform) -> None:
    effects = NatsEffects(platform.nc, platform.topology)
    tree = uuid4().hex
    call = f"{tree}_1_0"
    revoked = revocation(call)
    claim = replace(revoked.claim, executor="x", call_seq=7)
    await effects.claim(claim)
    other = await connect(platform.settings, "another executor")
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def note(message: object) -> None:
        heard.put_nowait(message.data)  # type: ignore[attr-defined]

    await other.subscribe(platform.topology.interrupt(tree), cb=note)
    await settled(other)
    await platform.bus.revoke(revoked)
    assert await asyncio.wait_for(heard.get(), patience()) == call.encode()
    found = await effects.read(claim)
    assert found is not None
    assert found.claim == replace(claim, revoked=True), "nobody runs it again after its executor's death"
    assert found.result is None
    await other.close()
