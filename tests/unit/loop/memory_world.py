"""A world in memory for runners: a fenced journal, a bus that delivers at least once, a virtual clock.

Everything is kept as bytes, as on the wire; nothing is deduplicated, so each message is heard as often
as it is sent. Faults are asked for by number: the next so many sends or appends go wrong.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from cadre.delivery.codec import decode, encode
from cadre.delivery.hash_chain import seal
from cadre.delivery.whole_journal import whole_journal
from cadre.engine.fold import fold
from cadre.engine.model_request import ModelRequest
from cadre.errors import BusUnavailable, Fenced, OutcomeUnknown, RetryableError
from cadre.journal import events as ev
from cadre.journal.arrivals import Offer
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.ports import Appended, Delivery, FoundMessage, Model, ModelReply, OnText, Stored
from cadre.prompting.prompts import Prompts
from cadre.protocol.deltas import Delta
from cadre.protocol.messages import (
    Addressed,
    CodeCall,
    EffectResult,
    Record,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)
from cadre.protocol.topology import result_id, tree_of
from cadre.runtime.pinned_prompts import PinnedPrompts
from cadre.runtime.runner import Runner, World
from cadre.spec.agent import AgentSpec

PROMPTS = Prompts.load("tool_calling")
MOST_DELIVERIES = 20

Answer = ModelReply | Exception


class MemoryClock:
    """ports.Clock: sleeping takes no time but moves the clock on, while it runs."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []
        self.asleep = asyncio.Event()
        self.running = asyncio.Event()
        self.running.set()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        await self.running.wait()
        self.time += seconds
        await asyncio.sleep(0)


class MemoryJournal:
    """ports.Journal with the fence and the back-pointers of the real one."""

    def __init__(self, timers: dict[tuple[str, str], TimerSet], seqs: Iterator[int]) -> None:
        self._seqs = seqs
        self._subjects: dict[str, list[int]] = {}
        self._stream: dict[int, bytes] = {}
        self._timers = timers
        self.reads = 0
        self.lost_answers = 0

    async def read(self, tree: str, run: str) -> list[Stored]:
        await asyncio.sleep(0)
        self.reads += 1
        seqs = self._subjects.get(run, [])
        if not seqs:
            return []
        return await whole_journal(self._get(seqs[-1]), self._get_all)

    async def last(self, tree: str, run: str) -> int:
        await asyncio.sleep(0)
        return next(reversed(self._subjects.get(run, [])), 0)

    async def _get_all(self, seqs: Sequence[int]) -> list[Stored]:
        return [self._get(seq) for seq in seqs]

    async def append(
        self,
        entry: Entry,
        fence: int,
        *,
        before: str = "",
        ends_timer: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Appended:
        data, hash_ = seal(entry, before)
        if meanwhile is not None:
            meanwhile()
        await asyncio.sleep(0)
        seqs = self._subjects.setdefault(entry.run, [])
        if fence != (seqs[-1] if seqs else 0):
            raise Fenced
        seq = next(self._seqs)
        seqs.append(seq)
        self._stream[seq] = data
        if ends_timer is not None:
            self._timers.pop((entry.run, ends_timer), None)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("an append", "the test lost its answer")
        return Appended(seq, hash_)

    def entries(self, run: str) -> list[Entry]:
        """Return all entries of a run."""
        return [self._get(seq).entry for seq in self._subjects.get(run, [])]

    def _get(self, seq: int) -> Stored:
        data = self._stream[seq]
        return Stored(seq, decode(data, Entry))


class TimerSet(NamedTuple):
    due: float
    agent: str
    timer: TimerFired


class Delivered(NamedTuple):
    agent: str
    data: bytes
    deliveries: int = 1
    seq: int = 0

    @property
    def record(self) -> Record:
        record: Record = decode(self.data, Record)
        return record


class MemoryBus:
    """ports.Bus, and the tools that answer the calls sent over it."""

    def __init__(
        self, clock: MemoryClock, timers: dict[tuple[str, str], TimerSet], seqs: Iterator[int]
    ) -> None:
        self._clock = clock
        self._seqs = seqs
        self.timers = timers
        self.inbox: list[Delivered] = []
        self.sent: list[Addressed] = []
        self.deltas: list[Delta] = []
        self.revoked: list[str] = []
        self.passed_on: list[tuple[int, bytes]] = []
        """What went to the queues of other revisions: the slot and the record."""
        self.tools: dict[str, Callable[..., Any]] = {"add": lambda a, b: a + b}
        self.runners: list[Runner] = []
        self.failing_sends = 0

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        await asyncio.sleep(0)
        if self.failing_sends:
            self.failing_sends -= 1
            raise BusUnavailable("sending", "the test cut the wire")
        self.sent.append(message)
        if isinstance(message, ToolCall):
            self._call(message)
            return
        if isinstance(message, CodeCall):
            return  # nobody runs code here: a test answers itself
        agent = message.agent if isinstance(message, Task) else to
        assert agent is not None
        self.arrive(agent, message)

    def arrive(self, agent: str, record: Record) -> None:
        """Puts a record into the agent's inbox, behind everything that the stream holds."""
        self.inbox.append(Delivered(agent, encode(record), seq=next(self._seqs)))

    async def find(self, tree: str, seq: int) -> FoundMessage | None:
        return None

    async def pass_on(self, delivery: Delivery, record: Record, slot: int) -> None:
        await asyncio.sleep(0)
        self.passed_on.append((slot, delivery.data))

    async def revoke(self, settled: EffectResult) -> bool:
        await asyncio.sleep(0)
        self.revoked.append(settled.claim.call)
        return True

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        await asyncio.sleep(0)
        self.timers[timer.run, timer.name] = TimerSet(due, agent, timer)

    async def interrupt(self, tree: str, run: str) -> None:
        for runner in self.runners:
            runner.interrupt(run)

    async def tell(self, tree: str, delta: Delta) -> None:
        self.deltas.append(delta)

    def _call(self, asked: ToolCall) -> None:
        if asked.tool in self.tools:
            answer = ToolResult(
                id=result_id(asked.id),
                tree=asked.tree,
                run=asked.run,
                at=self._clock.now(),
                call=asked.id,
                tool=asked.tool,
                output=self.tools[asked.tool](**asked.arguments),
            )
            self.arrive(asked.agent, answer)


class ScriptedModel:
    """ports.Model that says what it is told to, in order, the last answer for ever."""

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
    """What several runners share: each stands for a process of its own, with its own cache."""

    def __init__(self) -> None:
        self.clock = MemoryClock()
        timers: dict[tuple[str, str], TimerSet] = {}
        seqs = itertools.count(1)
        self.journal = MemoryJournal(timers, seqs)
        self.bus = MemoryBus(self.clock, timers, seqs)
        self._agents: dict[str, Runner] = {}

    def worker(
        self, spec: AgentSpec, model: Model, offer: Offer, prompts: Prompts | PinnedPrompts = PROMPTS
    ) -> Runner:
        """A new process for the agent; `drive` gives it the agent's records from now on."""
        pinned = prompts if isinstance(prompts, PinnedPrompts) else PinnedPrompts(prompts)
        runner = Runner(spec, pinned, World(self.journal, self.bus, model, self.clock), lambda: offer)
        self.bus.runners.append(runner)
        self._agents[spec.name] = runner
        return runner

    async def drive(self, *first: Record, agent: str = "boss") -> None:
        """Delivers records, everything at hand at once, and lets timers go off, until all is quiet."""
        for record in first:
            self.bus.arrive(agent, record)
        while self.bus.inbox or self.bus.timers:
            if not self.bus.inbox:
                self.let_a_timer_go_off()
            batch, self.bus.inbox = self.bus.inbox, []
            await asyncio.gather(*(self._deliver(one) for one in batch))

    def run(self, run: str) -> Run:
        return fold(self.journal.entries(run), run, tree_of(run))

    def result(self, run: str) -> Any:
        """How the run has ended."""
        result = self.run(run).result
        assert result is not None
        return result

    def events(self, run: str) -> list[ev.AnyEvent]:
        return [event for entry in self.journal.entries(run) for event in entry.events]

    def let_a_timer_go_off(self) -> None:
        key = min(self.bus.timers, key=lambda one: self.bus.timers[one].due)
        due, agent, timer = self.bus.timers.pop(key)
        self.clock.time = max(self.clock.time, due)
        self.bus.arrive(agent, timer)

    async def _deliver(self, one: Delivered) -> None:
        """As the host does it: a bus that fails is tried again, a record not acked comes back."""
        assert one.deliveries < MOST_DELIVERIES, f"{one.record.id} is never handled to the end"
        try:
            acked = await self._agents[one.agent].handle(one.record, one.deliveries, one.seq)
        except RetryableError:
            acked = False
        if not acked:
            self.bus.inbox.append(one._replace(deliveries=one.deliveries + 1))
