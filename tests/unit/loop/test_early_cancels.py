"""Cancellations that are heard of next to the queue, of runs that a model is asked for."""

import asyncio

import pytest

from cadre.delivery.codec import encode
from cadre.errors import BusUnavailable
from cadre.journal.arrivals import Toolset
from cadre.journal.run import Phase
from cadre.ports import FoundMessage, ModelReply
from cadre.protocol.deltas import cancel_hint, read_cancel_hint
from cadre.protocol.messages import Record
from cadre.protocol.topology import Address
from cadre.runtime.inbox import EarlyCancels
from cadre.runtime.runner import Runner
from cadre.spec.agent import AgentSpec
from cadre.testing.in_memory_ports import InMemoryBlobs
from cadre.testing.in_memory_process import InMemoryProcess
from unit.loop.build import ANSWER, cancel, task, timer
from unit.loop.memory_world import MemoryWorld, ScriptedModel

SPEC = AgentSpec(name="boss", description="Leads.")


class Asking:
    """A worker whose model does not answer, and what was sent to its agent."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.model = ScriptedModel(ModelReply(calls=[ANSWER]), gate=asyncio.Event())
        self.runner: Runner = self.world.worker(SPEC, self.model, Toolset())
        self.sent: dict[int, FoundMessage] = {}
        self.found: list[int] = []
        self.cancels = EarlyCancels(self.runner, self._find, InMemoryBlobs(InMemoryProcess("boss"), {}))

    async def _find(self, tree: str, seq: int) -> FoundMessage | None:
        self.found.append(seq)
        if seq == 0:
            raise BusUnavailable("reading", "no answer")
        return self.sent.get(seq)

    def send(self, seq: int, record: Record, *, run: str = "r1", sender: str = "gateway") -> None:
        self.sent[seq] = FoundMessage(Address("in", "boss", sender, run, run), encode(record))

    async def settle(self) -> None:
        """Lets all that was begun by hints end."""
        while self.cancels.tasks:
            await asyncio.wait(self.cancels.tasks)


async def test_it_ends_the_run_and_the_queue_finds_it_accounted_for() -> None:
    asking = Asking()
    asking.send(7, cancel())
    handling = asyncio.create_task(asking.runner.handle(task(), 1, 1))
    await asking.model.asked.wait()
    asking.cancels.hear(cancel_hint("r1", 7))
    assert await asyncio.wait_for(handling, 30), "the call is dropped, and the task may be acked"
    assert asking.world.result("r1").state == "cancelled"
    entries = len(asking.world.entries("r1"))
    assert await asking.runner.handle(cancel(), 1, 7)
    assert len(asking.world.entries("r1")) == entries


async def test_it_may_be_heard_of_before_the_model_is_asked() -> None:
    asking = Asking()
    asking.send(7, cancel())
    asking.cancels.hear(cancel_hint("r1", 7))
    assert asking.found == [], "runs that are others' to end are not looked up"
    assert await asyncio.wait_for(asking.runner.handle(task(), 1, 1), 30)
    assert asking.world.result("r1").state == "cancelled"


@pytest.mark.parametrize(
    ("seq", "record", "about"),
    [
        (7, cancel(run="r2"), {"run": "r2"}),
        (7, cancel(run="r2"), {}),
        (7, timer("deadline"), {"sender": "timer"}),
        (8, cancel(), {}),
        (0, cancel(), {}),
    ],
    ids=["another run's", "of a wrong subject", "no cancellation", "not there", "unreadable"],
)
async def test_what_is_no_cancellation_of_the_run_changes_nothing(
    seq: int, record: Record, about: dict[str, str]
) -> None:
    asking = Asking()
    asking.send(7, record, **about)
    handling = asyncio.create_task(asking.runner.handle(task(), 1, 1))
    await asking.model.asked.wait()
    asking.cancels.hear(cancel_hint("r1", seq))
    await asking.settle()
    assert asking.found == [seq]
    assert asking.world.run("r1").phase is not Phase.DONE
    asking.cancels.hear("r1")
    assert not await asyncio.wait_for(handling, 30), "a call that was dropped by its run's id is asked again"


def test_other_hints_are_told_apart() -> None:
    assert read_cancel_hint(cancel_hint("r1", 7)) == ("r1", 7)
    assert read_cancel_hint("r1") is None
    assert read_cancel_hint("r1:model:step:1:1") is None
