"""Tests of what an agent does with records that it cannot take: who is informed, and who is not."""

import pytest
from msgspec.structs import replace

from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.journal.events import RecordIgnored
from cadre.ports import QuarantineRecord, Stored
from cadre.protocol.messages import Report, UserMessage
from cadre.runtime.inbox import Inbox
from cadre.runtime.journaling import World
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from unit.loop.build import ANSWER, OFFER, SPEC, call, kinds, result, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.test_user_messages import said
from unit.loop.workers import says
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

CHILD = "r1_1_0"


async def settle(
    world: MemoryWorld,
    data: bytes,
    *,
    run: str = CHILD,
    sender: str = "chief",
    quarantine: MemoryQuarantine | None = None,
    published_again: bool = False,
) -> list[object]:
    """Return what becomes of a record for `boss`; `quarantine` is of a message that has come often."""
    model = ScriptedModel(says(ANSWER))
    ports = World(world.journal, world.bus, model, world.clock, world.tallies)
    inbox = Inbox("boss", world.worker(SPEC, model, OFFER), ports, MemoryBlobs(), quarantine or MemoryQuarantine())
    delivered = Delivered(99 if quarantine else 1, data, f"cadre.in.0.boss.{sender}.r1.{run}")
    delivered.retried = published_again
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
    assert (sent.child, sent.run, sent.state, world.stream.inbox[0].agent) == (CHILD, "r1", "error", "chief")
    assert sent.error is not None
    assert str(reason) in sent.error.message


@pytest.mark.parametrize("run", ["r1", CHILD])
async def test_nobody_is_told_of_what_is_no_task_of_a_member(run: str) -> None:
    """A root has no manager; and of a run that has begun the journal reports."""
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
    assert (world.bus.sent, world.entries(CHILD)) == ([], [])


async def test_an_answer_on_the_wrong_subject_ends_the_run_that_waits_for_its_sender() -> None:
    world = MemoryWorld()
    await world.worker(SPEC, ScriptedModel(says(call("look", at="x"))), OFFER).handle(task(run=CHILD, parent="r1"))
    [reason] = await settle(world, encode(result("r9_1_0", tool="look")), sender="look")
    ended = world.run(CHILD).result
    assert ended is not None
    assert ended.error is not None
    assert "was sent to 'r1_1_0'" in str(reason)
    assert str(reason) in ended.error.message


@pytest.mark.parametrize(("published_again", "reports"), [(False, 0), (True, 1)])
async def test_a_record_that_was_published_again_is_paid_for_wherever_it_lies(
    published_again: bool, reports: int
) -> None:
    """Behind what the journal knew of it, a record says of a second publication, unless a person had it retried."""
    world = MemoryWorld()
    data = encode(task(run=CHILD, parent="r1"))
    await settle(world, data)
    world.bus.sent.clear()
    assert await settle(world, data, published_again=published_again) == ["ack"]
    assert len(world.bus.sent) == reports


@pytest.mark.parametrize("data", [encode(task(run=CHILD, parent="r1")), b"nonsense"])
async def test_a_record_that_ends_its_workers_ends_its_run(data: bytes) -> None:
    quarantine, world = MemoryQuarantine(), MemoryWorld()
    quarantine.held[7] = (QuarantineRecord(seq=7, attempts_alone=99), 1)
    [reason] = await settle(world, data, quarantine=quarantine)
    assert quarantine.held == {}
    reports = [one for one in world.bus.sent if isinstance(one, Report)]
    assert [(one.child, one.run, one.state) for one in reports] == [(CHILD, "r1", "error")]
    error = reports[0].error
    assert error is not None
    assert error.type == "Poisoned"
    assert str(reason) in error.message
    assert (world.run(CHILD).task is None) is (data == b"nonsense")


async def test_a_record_that_ends_its_workers_ends_its_run_before_what_was_sent_earlier() -> None:
    """The earlier record may be what kills: the end neither handles it nor waits for it, and it comes too late then."""
    quarantine, world = MemoryQuarantine(), MemoryWorld()
    await world.worker(SPEC, ScriptedModel(says(call("look", at="x"))), OFFER).handle(task())
    earlier, later = said("Killing.", number=1), said("Killed.", number=2)
    await world.bus.send_in_order(earlier, "gateway", to="boss")
    await world.bus.send_in_order(later, "gateway", to="boss")
    first, second = (one.data for one in world.stream.inbox if isinstance(one.record, UserMessage))
    assert decode(second, UserMessage).follows is not None
    quarantine.held[7] = (QuarantineRecord(seq=7, attempts_alone=99), 1)
    await settle(world, second, run="r1", sender="gateway", quarantine=quarantine)
    assert await settle(world, first, run="r1", sender="gateway") == ["ack"]
    ended, late = world.entries("r1")[-2:]
    assert (ended.cause, kinds(ended.events)) == (later.id, ["RunFinished"])
    assert (late.cause, [e.code for e in late.events if isinstance(e, RecordIgnored)]) == (earlier.id, ["run-ended"])
    assert world.run("r1").result is not None


async def test_what_nobody_can_read_ends_a_run_that_has_begun() -> None:
    quarantine, world = MemoryQuarantine(), MemoryWorld()
    runner = world.worker(SPEC, ScriptedModel(says(call("look", at="x"))), OFFER)
    await runner.handle(task(run=CHILD, parent="r1"))
    quarantine.held[7] = (QuarantineRecord(seq=7, attempts_alone=99), 1)
    [reason] = await settle(world, b"nonsense", quarantine=quarantine)
    ended = world.run(CHILD).result
    assert ended is not None
    assert ended.error is not None
    assert str(reason) in ended.error.message
    reports = [one for one in world.bus.sent if isinstance(one, Report)]
    assert [one.child for one in reports] == [CHILD], "by the run itself, and once"


@pytest.mark.parametrize(("sender", "ends"), [("look", True), ("gateway", False), ("add", False)])
async def test_a_run_does_not_wait_for_an_answer_that_nobody_can_read(sender: str, ends: bool) -> None:
    """A message from a sender whom the run does not wait for breaks no run, be they people or tools."""
    world = MemoryWorld()
    await world.worker(SPEC, ScriptedModel(says(call("look", at="x"))), OFFER).handle(task(run=CHILD, parent="r1"))
    [reason] = await settle(world, b"nonsense", sender=sender)
    ended = world.run(CHILD).result
    assert (ended is not None) is ends
    if ended is not None:
        assert ended.error is not None
        assert holds(ended.error.message, "'look'", str(reason))
        assert [one.child for one in world.bus.sent if isinstance(one, Report)] == [CHILD]


async def test_a_run_whose_journal_cannot_be_read_is_not_ended_and_its_poison_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable(tree: str, run: str) -> list[Stored]:
        raise UnreadableMessage("no entry")

    quarantine, world = MemoryQuarantine(), MemoryWorld()
    quarantine.held[7] = (QuarantineRecord(seq=7, attempts_alone=99), 1)
    monkeypatch.setattr(world.journal, "read", unreadable)
    [reason] = await settle(world, encode(task(run=CHILD, parent="r1")), quarantine=quarantine)
    assert "processes died" in str(reason)
