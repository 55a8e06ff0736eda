"""What an agent does with records that it cannot take: who is told, and who is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cadre.delivery.codec import encode
from cadre.protocol.messages import Report
from cadre.runtime.inbox import Inbox
from cadre.runtime.runner import World
from sandbox.service_bench import Blobs
from unit.loop.build import ANSWER, OFFER, SPEC, result, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.workers import says
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

CHILD = "r1_1_0"


async def settle(world: MemoryWorld, data: bytes, *, run: str = CHILD, sender: str = "chief") -> list[object]:
    model = ScriptedModel(says(ANSWER))
    ports = World(world.journal, world.bus, model, world.clock)
    inbox = Inbox("boss", world.worker(SPEC, model, OFFER), ports, Blobs(), MemoryQuarantine())
    delivered = Delivered(1, data, f"cadre.in.0.boss.{sender}.r1.{run}")
    await inbox.handle(delivered)
    return delivered.settled


async def test_a_task_is_taken_and_acked() -> None:
    world = MemoryWorld()
    assert await settle(world, encode(task(run=CHILD, parent="r1"))) == ["ack"]
    assert world.run(CHILD).result is not None


async def test_a_manager_is_told_of_a_task_that_cannot_be_read() -> None:
    world = MemoryWorld()
    [reason] = await settle(world, b"nonsense")
    (sent,) = world.bus.sent
    assert isinstance(sent, Report)
    assert (sent.child, sent.run, sent.state, world.bus.inbox[0].agent) == (CHILD, "r1", "error", "chief")
    assert sent.error is not None
    assert sent.error.message == f"the task could not be read: {reason}"


@pytest.mark.parametrize("run", ["r1", CHILD])
async def test_nobody_is_told_of_what_is_no_task_of_a_member(run: str) -> None:
    """A root has no manager; and of a run that has begun the journal tells."""
    world = MemoryWorld()
    if run == CHILD:
        await settle(world, encode(task(run=CHILD, parent="r1")))
        world.bus.sent.clear()
    assert len(await settle(world, b"nonsense", run=run)) == 1
    assert world.bus.sent == []


@pytest.mark.parametrize(
    ("record", "sender", "why"),
    [
        (task(run=CHILD, parent="r1"), "stranger", "was sent by 'stranger'"),
        (
            replace(task(run=CHILD, parent="r1"), agent="other"),
            "chief",
            "a task for 'other' was sent to 'boss'",
        ),
        (result("r1_1_1"), "add", "was sent to 'r1_1_0'"),
    ],
)
async def test_what_is_not_its_senders_to_send_is_dropped_and_nobody_is_told(
    record: object, sender: str, why: str
) -> None:
    world = MemoryWorld()
    [reason] = await settle(world, encode(record), sender=sender)
    assert why in str(reason)
    assert (world.bus.sent, world.journal.entries(CHILD)) == ([], [])
