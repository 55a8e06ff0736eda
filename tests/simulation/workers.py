"""The processes of a deployment: agents, executors, sandboxes, built from production parts each time they start."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from cadre.delivery.fair_limiter import FairLimiter
from cadre.kinds.code.section import CodeSpec
from cadre.ports import Delivery
from cadre.prompting.prompts import kind_for
from cadre.protocol.memory import RECALL, REMEMBER
from cadre.protocol.rollout import slot_receiver
from cadre.runtime.code_calls import CodeCallHandler
from cadre.runtime.executor import Executor, InHand
from cadre.runtime.inbox import EarlyCancels, Inbox
from cadre.runtime.journaling import Journaling
from cadre.runtime.journaling import World as Ports
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from cadre.testing.in_memory_ports import (
    InMemoryBlobs,
    InMemoryBus,
    InMemoryEffects,
    InMemoryQuarantine,
    InMemoryTallies,
    Reach,
)
from cadre_memory.tools.memories import CallHandler, Memories
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.serving.exchange import AnswerBuilder
from cadre_sandbox.serving.run_block import CodeRunner
from cadre_sandbox.serving.warm_pool import WarmPool
from simulation.adapters import SimClock, SimJournal
from simulation.box import SimSandbox
from simulation.contexts import prompts_of
from simulation.loop import Process
from simulation.memory import SimMemories
from simulation.model import PlannedModel, Told
from simulation.peers import SimPeers
from simulation.queue import SimDelivery, SimQueue
from simulation.sharing import REVISIONS, check_writer, queue_of, revision_of
from simulation.tools import CHECKS, TOOLS, shelf
from simulation.warm import SimWarm
from simulation.wire import Wire

if TYPE_CHECKING:
    from simulation.world import World


POOL = CodeSpec().pool


class Parts(NamedTuple):
    """The parts of workers; a test puts a broken part in its place."""

    runner: type[Runner] = Runner
    journaling: type[Journaling] = Journaling
    inbox: type[Inbox] = Inbox
    executor: type[Executor] = Executor
    in_hand: type[InHand] = InHand
    journal: type[SimJournal] = SimJournal
    effects: type[InMemoryEffects] = InMemoryEffects
    bus: type[InMemoryBus] = InMemoryBus
    warm_pool: type[WarmPool] = WarmPool
    code_runner: type[CodeRunner] = CodeRunner
    serving: type[CodeCallHandler] = CodeCallHandler
    memories: type[SimMemories] = SimMemories
    fan: int | None = None
    """Size of a block of back-pointers; None: the scenario says it."""


class Live(NamedTuple):
    """A worker while it lives."""

    process: Process
    queues: list[SimQueue]
    interrupt: Callable[[str], None]
    close: Callable[[], Awaitable[None]] | None = None

    async def drain(self, grace: float) -> None:
        await asyncio.gather(*(queue.drain(grace) for queue in self.queues))
        if self.close is not None:
            await self.close()


class Connection:
    """A process's ports on the server."""

    def __init__(self, world: World, process: Process) -> None:
        parts = world.parts
        self.wire = Wire(process, world.ways)
        self.clock = SimClock(world.loop, process)
        reach = Reach(self.wire, world.server.streams, world.topology)
        self.journal = parts.journal(reach, world.faults)
        self.blobs = InMemoryBlobs(self.wire, world.blobs)
        self.bus = parts.bus(reach, self.blobs, world.interrupt_all)
        self.effects = parts.effects(reach)
        self.quarantine = InMemoryQuarantine(reach)
        self.tallies = InMemoryTallies(reach)


def start_agent(world: World, process: Process, name: str, number: int) -> Live:
    """A replica of an agent, with an empty cache."""
    ports, scenario = Connection(world, process), world.scenario
    spec = scenario.specs[name]
    tell = Told(world.die, world.deadly.add, world.outgrown.append)
    model = PlannedModel(spec, scenario.plans, world.chance, world.faults, tell)
    reach = Ports(ports.journal, ports.bus, model, ports.clock, ports.tallies)
    runner = world.parts.runner(
        spec,
        PinnedPrompts(prompts_of(kind_for(spec))),
        reach,
        lambda: world.toolset(name),
        journaling=world.parts.journaling,
    )
    inbox = world.parts.inbox(name, runner, reach, ports.blobs, ports.quarantine)
    limiter = FairLimiter(scenario.credit, queues=scenario.shards)
    receivers = [name]
    if (sharing := scenario.sharing.get(name)) is not None:
        runner.journaling.revision = revision_of(number)
        lag = random.Random(process.name).uniform(0.0, 3.0)
        runner.journaling.revisions = queue_of(sharing, runner.journaling.revision, world.loop, lag)
        ports.journal.before_append = functools.partial(check_writer, world.history, runner.journaling.revision)
        receivers.append(slot_receiver(name, REVISIONS.index(runner.journaling.revision) + 1))
    queues = [
        SimQueue(world.loop, ports.wire, stream.consumer("in", receiver), inbox.handle, limiter)
        for stream in world.server.streams
        for receiver in receivers
    ]
    return Live(process, queues, EarlyCancels(runner, ports.bus.find, ports.blobs).hear)


def start_executor(world: World, process: Process) -> Live:
    """An executor of all tools."""
    ports = Connection(world, process)
    peers = SimPeers(world, ports.wire)
    in_hand = world.parts.in_hand(process.name, ports.effects, peers)
    peers.answer(in_hand.has)
    executor = world.parts.executor(ports.effects, ports.bus, ports.blobs, in_hand, ports.quarantine, ports.clock)
    limiter, queues = FairLimiter(world.scenario.credit), []
    for name, one in (TOOLS | CHECKS if world.scenario.checks else TOOLS).items():
        own = FairLimiter(world.scenario.credit, queues=world.scenario.shards, within=limiter)
        handler = functools.partial(executor.handle, one)
        queues += [
            SimQueue(world.loop, ports.wire, stream.consumer("call", name), handler, own)
            for stream in world.server.streams
        ]
    return Live(process, queues, executor.invocations.interrupt)


def start_memory(world: World, process: Process) -> Live:
    """One process of the memory service."""
    ports = Connection(world, process)
    memories = cast(Memories, world.parts.memories(world, ports.wire))
    serving = CallHandler(memories, ports.bus, ports.blobs, ports.quarantine, process.name, ports.clock)
    limiter, queues = FairLimiter(world.scenario.credit), []
    for name in (RECALL, REMEMBER):
        own = FairLimiter(world.scenario.credit, queues=world.scenario.shards, within=limiter)
        queues += [
            SimQueue(world.loop, ports.wire, stream.consumer("call", name), serving.handle, own)
            for stream in world.server.streams
        ]
    return Live(process, queues, _nothing_to_stop)


def _nothing_to_stop(run: str) -> None:
    """Requests to the memory service take no time worth saving."""


def start_sandbox(world: World, process: Process) -> Live:
    """A sandbox of the one pool, nothing warm in it."""
    ports, scenario, parts = Connection(world, process), world.scenario, world.parts
    sandbox = cast(Sandbox, SimSandbox(world, process))
    warm = SimWarm(world, ports.wire, lambda delivery: take(delivery))
    warm_pool = parts.warm_pool(sandbox, scenario.sessions, scenario.idle_seconds, warm)
    runner = parts.code_runner(
        warm_pool, ports.blobs, AnswerBuilder(ports.blobs, process.name, "ns"), ports.clock, b"of the pool"
    )
    serving = parts.serving(runner, ports.bus, ports.quarantine, POOL)

    async def handle(delivery: Delivery) -> None:
        assert isinstance(delivery, SimDelivery)
        await serving.handle(delivery, lambda run: warm.hand_over(delivery, run))

    limiter = FairLimiter(min(scenario.credit, scenario.sessions), queues=scenario.shards)
    queues = [
        SimQueue(world.loop, ports.wire, stream.consumer("code", POOL), handle, limiter)
        for stream in world.server.streams
    ]

    async def take(delivery: SimDelivery) -> bool:
        if not await serving.can_continue(delivery):
            return False
        return queues[world.topology.shard(delivery.address.tree)].adopt(delivery, serving.handle)

    return Live(process, queues, warm_pool.interrupt, warm_pool.close)


class Worker:
    """A place in the deployment: no matter what happens to its process, another one takes its place."""

    def __init__(self, world: World, name: str, start: Callable[[Process], Live]) -> None:
        self._world = world
        self._name = name
        self._start = start
        self._lives = 0
        self.live: Live

    def begin(self) -> None:
        self._lives += 1
        process = Process(f"{self._name}.{self._lives}")
        process.mortal = True
        most = self._world.scenario.most_skew
        process.skew = self._world.chance.uniform(-most, most)
        self._world.workers[process] = self
        process.context.run(shelf.set, self._world.shelf)
        self.live = process.context.run(self._start, process)
        for queue in self.live.queues:
            queue.start()

    def crash(self, why: str, live: Live | None = None) -> None:
        """Killed on the spot, unless it is dead by now; somebody starts it again after a while."""
        world, live = self._world, live or self.live
        if not live.process.alive:
            return
        at_work = (str(seq) for queue in live.queues for seq in queue.at_work())
        world.trace.note(why, live.process.name, *at_work)
        world.loop.kill(live.process)
        for queue in live.queues:
            queue.leave()
        world.loop.at(world.chance.uniform(0.05, 4.0), self.begin)

    def stop(self) -> None:
        """As SIGSTOP; and SIGCONT later, when others may have done its work."""
        world, process = self._world, self.live.process
        seconds = world.chance.uniform(0.5, 15.0)
        world.trace.note("stop", process.name, f"{seconds:.3f}")
        world.loop.halt(process)
        world.loop.at(seconds, world.loop.resume, process)

    def cut(self) -> None:
        """No way between it and the server, for a while."""
        world, process = self._world, self.live.process
        seconds = world.chance.uniform(0.5, 15.0)
        world.trace.note("cut", process.name, f"{seconds:.3f}")
        process.cut = True
        world.loop.at(seconds, setattr, process, "cut", False)

    def drain(self) -> None:
        """Asked to end: a while for what it has in hand, the rest is handed back."""
        world, live = self._world, self.live
        world.trace.note("drain", live.process.name)
        live.process.mortal = False
        task = world.loop.spawn(live.process, live.drain(world.chance.choice((0.1, 3.0))))
        done = functools.partial(world.loop.at, 1.0, self.crash, "drained", live)
        task.add_done_callback(lambda _: done(), context=live.process.context)
