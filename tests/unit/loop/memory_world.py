"""A world in memory for runners: the ports of `cadre.testing` on one stream, driven by hand, on a virtual clock.

Nothing is deduplicated, so each message is heard as often as it is sent. Faults are asked for by number: the next so
many sends or appends go wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from cadre.delivery.codec import decode, encode
from cadre.engine.fold import fold
from cadre.engine.model_request import ModelRequest
from cadre.errors import RetryableError
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.ports import Delivery, Model, ModelReply, OnText
from cadre.prompting.prompts import Prompts
from cadre.protocol.deltas import Delta, StreamChunk
from cadre.protocol.messages import Addressed, EffectResult, Record, ToolCall, ToolResult
from cadre.protocol.topology import Topology, result_id, tree_of
from cadre.runtime.journaling import World
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from cadre.spec.agent import AgentSpec
from cadre.testing.in_memory_ports import InMemoryBus, InMemoryJournal, InMemoryTallies, Reach
from cadre.testing.in_memory_streams import InMemoryStream
from harness.memory_ports import MemoryBlobs, MemoryWire

PROMPTS = Prompts.load("tool_calling")
MOST_DELIVERIES = 20

Answer = ModelReply | Exception


class MemoryClock:
    """ports.Clock: sleeping takes no time but moves the clock on, while it runs. Alarms wait to be let go off."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []
        self.asleep = asyncio.Event()
        self.running = asyncio.Event()
        self.running.set()
        self.alarms: dict[int, tuple[float, Callable[[], None]]] = {}

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        await self.running.wait()
        self.time += seconds
        await asyncio.sleep(0)

    def at(self, due: float, callback: Callable[[], None]) -> int:
        number = max(self.alarms, default=0) + 1
        self.alarms[number] = (due, callback)
        return number

    def cancel(self, number: int) -> None:
        self.alarms.pop(number, None)

    def let_one_go_off(self) -> None:
        number = min(self.alarms, key=lambda one: self.alarms[one][0])
        due, callback = self.alarms.pop(number)
        self.time = max(self.time, due)
        callback()


class Delivered(NamedTuple):
    agent: str
    data: bytes
    deliveries: int = 1
    seq: int = 0

    @property
    def record(self) -> Record:
        record: Record = decode(self.data, Record)
        return record


class MemoryStream(InMemoryStream):
    """A stream without deduplication, whose records for agents wait in `inbox`."""

    def __init__(self, clock: MemoryClock) -> None:
        super().__init__(clock)
        self.inbox: list[Delivered] = []

    def append(self, subject: str, data: bytes, *, message_id: str | None = None, **more: Any) -> int:
        seq = super().append(subject, data, **more)
        _, kind, _, receiver, *_ = subject.split(".")
        if kind == "in":
            self.inbox.append(Delivered(receiver, data, seq=seq))
        return seq


class MemoryBus(InMemoryBus):
    """The bus, what was sent over it, and the tools that answer calls."""

    def __init__(self, reach: Reach, clock: MemoryClock) -> None:
        super().__init__(reach, MemoryBlobs(), self._interrupt)
        self._clock = clock
        self.sent: list[Addressed] = []
        self.deltas: list[Delta] = []
        self.revoked: list[str] = []
        self.passed_on: list[tuple[int, bytes]] = []
        """Records sent to the queues of other revisions: the slot and the record."""
        self.tools: dict[str, Callable[..., Any]] = {"add": lambda a, b: a + b}
        self.runners: list[Runner] = []

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        await super().send(message, sender, to=to)
        self.sent.append(message)
        if isinstance(message, ToolCall) and message.tool in self.tools:
            self.arrive(message.agent, self._answer(message))

    def arrive(self, agent: str, record: Record) -> None:
        """Puts a record into the agent's inbox, behind everything that the stream holds."""
        stream = self._reach.stream(record.tree)
        stream.append(self._reach.topology.inbox(agent, "test", record.tree, record.run), encode(record))

    async def pass_on(self, delivery: Delivery, record: Record, slot: int) -> None:
        await asyncio.sleep(0)
        self.passed_on.append((slot, delivery.data))

    async def revoke(self, settled: EffectResult) -> bool:
        self.revoked.append(settled.claim.call)
        return await super().revoke(settled)

    async def tell(self, tree: str, piece: Delta | StreamChunk) -> None:
        if isinstance(piece, Delta):
            self.deltas.append(piece)

    def _interrupt(self, run: str) -> None:
        for runner in self.runners:
            runner.interrupt(run)

    def _answer(self, asked: ToolCall) -> ToolResult:
        return ToolResult(
            id=result_id(asked.id),
            tree=asked.tree,
            run=asked.run,
            at=self._clock.now(),
            call=asked.id,
            tool=asked.tool,
            output=self.tools[asked.tool](**asked.arguments),
        )


class ScriptedModel:
    """ports.Model that says what it is asked to, in order, the last answer for ever."""

    def __init__(self, *answers: Answer, gate: asyncio.Event | None = None) -> None:
        self._answers = list(answers)
        self._gate = gate
        self.asked = asyncio.Event()
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self.requests.append(request)
        self.asked.set()
        await on_text("…")
        for _ in range(2):  # a model takes its time: others get a turn
            await asyncio.sleep(0)
        if self._gate is not None:
            await self._gate.wait()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class MemoryWorld:
    """The state that several runners share: each stands for another process, with its own cache."""

    def __init__(self) -> None:
        self.clock = MemoryClock()
        self.stream = MemoryStream(self.clock)
        self.wire = MemoryWire()
        self._topology = Topology(1)
        reach = Reach(self.wire, [self.stream], self._topology)
        self.journal = InMemoryJournal(reach)
        self.tallies = InMemoryTallies(reach)
        self.bus = MemoryBus(reach, self.clock)
        self._agents: dict[str, Runner] = {}

    def worker(
        self, spec: AgentSpec, model: Model, toolset: Toolset, prompts: Prompts | PinnedPrompts = PROMPTS
    ) -> Runner:
        """A new process for the agent; `drive` gives it the agent's records from now on."""
        pinned = prompts if isinstance(prompts, PinnedPrompts) else PinnedPrompts(prompts)
        runner = Runner(spec, pinned, World(self.journal, self.bus, model, self.clock, self.tallies), lambda: toolset)
        self.bus.runners.append(runner)
        self._agents[spec.name] = runner
        return runner

    async def drive(self, *first: Record, agent: str = "boss") -> None:
        """Delivers records, everything available at once, and lets timers go off, until all is quiet."""
        for record in first:
            self.bus.arrive(agent, record)
        while self.stream.inbox or self.clock.alarms:
            if not self.stream.inbox:
                self.clock.let_one_go_off()
            batch, self.stream.inbox = self.stream.inbox, []
            await asyncio.gather(*(self._deliver(one) for one in batch))

    def place(self) -> int:
        """Take the next sequence of the stream, for a record that a test hands over itself."""
        return self.stream.append("cadre.place.0.test", b"")

    def timers(self) -> dict[str, float]:
        """Return when each timer that is set goes off, by the timer's name."""
        return {
            subject.split(".")[-1]: self.clock.alarms[number][0] for subject, number in self.stream.scheduled.items()
        }

    def lose_timers(self) -> None:
        """Have nothing go off."""
        for subject in list(self.stream.scheduled):
            self.stream.unschedule(subject)

    def entries(self, run: str) -> list[Entry]:
        """Return all entries of a run."""
        subject = self._topology.journal(tree_of(run), run)
        return [decode(one.data, Entry) for one in self.stream.of_subject(subject)]

    def run(self, run: str) -> Run:
        return fold(self.entries(run), run, tree_of(run))

    def result(self, run: str) -> Any:
        """Return how the run has ended."""
        result = self.run(run).result
        assert result is not None
        return result

    def events(self, run: str) -> list[ev.AnyEvent]:
        return [event for entry in self.entries(run) for event in entry.events]

    async def _deliver(self, one: Delivered) -> None:
        """As the host does it: a bus that fails is tried again, a record not acked comes back."""
        assert one.deliveries < MOST_DELIVERIES, f"{one.record.id} is never handled to the end"
        try:
            acked = await self._agents[one.agent].handle(one.record, one.deliveries, one.seq)
        except RetryableError:
            acked = False
        if not acked:
            self.stream.inbox.append(one._replace(deliveries=one.deliveries + 1))
