"""The processes of a test team, built from production's parts each time one of them starts, and their clock, which
skips the time in which nothing happens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from cadre.delivery.codec import decode, encode
from cadre.delivery.fair_limiter import FairLimiter
from cadre.engine.model_request import ModelRequest
from cadre.engine.toolset import card_of, toolset_of
from cadre.errors import SetupError
from cadre.journal.entry import Entry
from cadre.options import Explaining
from cadre.ports import Blobs, Bus, Clock, Model, ModelReply, OnText, QuarantineStore
from cadre.prompting.prompts import Prompts, prompts_for
from cadre.protocol.cards import Presence
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.messages import Record, ToolCall
from cadre.protocol.nats_users import GATEWAY_SENDER
from cadre.protocol.topology import Topology
from cadre.runtime.executor import Executor, InHand
from cadre.runtime.inbox import Inbox
from cadre.runtime.invocation import FileAccess, InvocationOutcome, Invocations
from cadre.runtime.journaling import World
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of
from cadre.testing.in_memory_ports import (
    InMemoryBlobs,
    InMemoryBus,
    InMemoryEffects,
    InMemoryFileIndex,
    InMemoryJournal,
    InMemoryQuarantine,
    InMemoryTallies,
    Reach,
)
from cadre.testing.in_memory_process import Handler, InMemoryProcess, InMemoryQueue
from cadre.testing.in_memory_streams import InMemoryStream
from cadre.tools.loading import AnyTool

TOOLS = "tools"
"""Name of the process that runs the tools; a sandbox is named after its pool, an agent keeps its name."""

GROUP = "cadre.testing"
"""Entry points of this group start what a library cannot: `sandbox` is a `StartSandbox`."""

MAX_AT_WORK = 100
MAX_FILE_BYTES = 64 * 1024 * 1024


class CodeRunning(NamedTuple):
    """A sandbox at work in this process."""

    handle: Handler
    interrupt: Callable[[str], None]
    close: Callable[[], Awaitable[None]]


class StartSandbox(Protocol):
    """Starts the interpreters of a pool in this process."""

    async def __call__(
        self, pool: str, bus: Bus, blobs: Blobs, quarantine: QuarantineStore, clock: Clock
    ) -> CodeRunning: ...


class ModelAsked(NamedTuple):
    """A request to an agent's model."""

    agent: str
    request: ModelRequest


class InMemoryDeployment:
    """The services of a test team. `on_change` is called when something may have come to rest."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        tools: Mapping[str, AnyTool],
        models: Mapping[str, Model],
        on_change: Callable[[], None],
    ) -> None:
        self.agents, self.tools, self.models = agents, tools, models
        self.clock = SkippingClock()
        self.clock.on_sleep = on_change
        self.topology = Topology(1)
        self.stream = InMemoryStream(self.clock)
        self.blobs: dict[str, bytes] = {}
        self.prompts: Mapping[str, Prompts] = {}
        """Prompts of agents in place of those that their specs name, by their names."""
        self.files: dict[tuple[str, str], WorkspaceFile] = {}
        self.requests: list[ModelAsked] = []
        self.invocations: Counter[str] = Counter()
        """The number of times that the tool of a call has begun, by the call's id."""
        self.stores = 0
        """Records that the processes have stored."""
        self.kill_at: Callable[[InMemoryProcess, int], bool] = lambda process, stores: False
        """Returns True if the process that has just stored the record of this number dies behind it."""
        self.kill_before: Callable[[InMemoryProcess, int], bool] = lambda process, stores: False
        """Returns True if the process that is about to store the record of this number dies before it."""
        self.kills: list[str] = []
        self.problem: BaseException | None = None
        """An error that a handler has raised although no handler should."""
        self._on_change = on_change
        self._live: dict[str, _Live] = {}
        self._lives: Counter[str] = Counter()
        self._replies: dict[asyncio.Task[Any], tuple[str, ModelReply]] = {}
        self._unheard: dict[str, list[ModelReply]] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._toolsets = {name: toolset_of(spec, self._presences()) for name, spec in agents.items()}
        self._starters: dict[str, Callable[[InMemoryProcess], Awaitable[_Live]]] = {}

    async def start(self) -> None:
        """Start all processes. Raises SetupError."""
        for name, spec in self.agents.items():
            self._starters[name] = functools.partial(self._start_agent, spec)
        if self.tools:
            self._starters[TOOLS] = self._start_tools
        programs = [name for name, spec in self.agents.items() if facts_of(spec).serves_pools]
        if programs:
            raise SetupError(
                f"{programs[0]} is a program, which runs in its own processes: try it with `cadre up`, or call its"
                " function with a client of the scripted model"
            )
        pools = {pool for spec in self.agents.values() for pool in facts_of(spec).pools}
        for pool in sorted(pools):
            self._starters[f"sandbox {pool}"] = functools.partial(self._start_sandbox, pool)
        for name in self._starters:
            await self._begin(name)

    async def close(self) -> None:
        """End all processes and all their work."""
        self.clock.stop()
        # A process that replaces one that was killed would take work on behind the others' end.
        self.kill_at = self.kill_before = lambda process, stores: False
        await asyncio.gather(*self._restarts, return_exceptions=True)
        tasks = [task for live in self._live.values() for task in live.process.at_work]
        for live in self._live.values():
            live.process.kill()
        await asyncio.gather(*tasks, return_exceptions=True)
        for live in self._live.values():
            await live.close()

    def is_idle(self) -> bool:
        """Return whether nothing goes on but waiting for a time or for a person outside."""
        if self._restarts:
            return False
        at_work = {task for live in self._live.values() for task in live.process.at_work}
        return at_work <= self.clock.sleeping

    def process(self, name: str) -> InMemoryProcess:
        """The living process of the service. Raises SetupError if no process has the name."""
        if name not in self._live:
            raise SetupError(f"the team has no process {name!r}; it has {', '.join(self._live)}")
        return self._live[name].process

    def kill(self, process: InMemoryProcess) -> None:
        """Kill the process where it stands; another one takes its place."""
        if not process.is_alive:
            return
        name = process.name
        self.kills.append(name)
        for task, (digest, reply) in list(self._replies.items()):
            if task in process.at_work:
                # The answer was lost: a caller that asks again gets it.
                del self._replies[task]
                self._unheard.setdefault(digest, []).append(reply)
        old = self._live.pop(name)
        process.kill()
        starting = asyncio.get_running_loop().create_task(self._replace(name, old))
        self._restarts.add(starting)
        starting.add_done_callback(self._restarted)

    async def _replace(self, name: str, old: _Live) -> None:
        await old.close()
        await self._begin(name)

    def _restarted(self, starting: asyncio.Task[None]) -> None:
        self._restarts.discard(starting)
        self._ended(None if starting.cancelled() else starting.exception())

    async def _begin(self, name: str) -> None:
        process = InMemoryProcess(name, self._stored, self._storing)
        self._lives[name] += 1
        self._live[name] = await self._starters[name](process)
        self._on_change()

    def _storing(self, process: InMemoryProcess) -> None:
        if self.kill_before(process, self.stores + 1):
            self.kill_before = lambda process, stores: False
            self.kill(process)

    def _stored(self, process: InMemoryProcess) -> None:
        self.stores += 1
        task = asyncio.current_task()
        if task is not None:
            self._replies.pop(task, None)
        if self.kill_at(process, self.stores):
            self.kill(process)

    def interrupt_all(self, run: str) -> None:
        """Tell every process to stop what it does for the run or call."""
        for live in self._live.values():
            live.interrupt(run)

    # --- how each kind of process starts

    def ports(self, process: InMemoryProcess) -> _Ports:
        """The ports of one process."""
        reach = Reach(process, [self.stream], self.topology)
        blobs = InMemoryBlobs(process, self.blobs)
        return _Ports(
            journal=InMemoryJournal(reach),
            blobs=blobs,
            bus=InMemoryBus(reach, blobs, self.interrupt_all),
            effects=InMemoryEffects(reach),
            quarantine=InMemoryQuarantine(reach),
            tallies=InMemoryTallies(reach),
            files=InMemoryFileIndex(process, self.files),
        )

    async def _start_agent(self, spec: AgentSpec, process: InMemoryProcess) -> _Live:
        ports = self.ports(process)
        model = _Heard(self, spec.name)
        world = World(ports.journal, ports.bus, model, self.clock, ports.tallies)
        prompts = self.prompts.get(spec.name) or prompts_for(spec)
        runner = Runner(spec, PinnedPrompts(prompts), world, lambda: self._toolsets[spec.name])
        inbox = Inbox(spec.name, runner, world, ports.blobs, ports.quarantine)
        self._serve(process, "in", spec.name, inbox.handle, FairLimiter(MAX_AT_WORK))
        return _Live(process, runner.interrupt)

    async def _start_tools(self, process: InMemoryProcess) -> _Live:
        ports = self.ports(process)
        in_hand = InHand(f"{process.name}.{self._lives[TOOLS]}", ports.effects, _NoPeers())
        executor = Executor(ports.effects, ports.bus, ports.blobs, in_hand, ports.quarantine, self.clock)
        executor.invocations = _CountedInvocations(self.invocations)
        executor.invocations.files = FileAccess(ports.files, ports.blobs, MAX_FILE_BYTES)
        limiter = FairLimiter(MAX_AT_WORK)
        for name, tool in self.tools.items():
            own = FairLimiter(tool.concurrency or MAX_AT_WORK, within=limiter)
            if tool.concurrency is not None:
                executor.invocations.limiters[name] = own
            self._serve(process, "call", name, functools.partial(executor.handle, tool), own)
        return _Live(process, executor.invocations.interrupt)

    async def _start_sandbox(self, pool: str, process: InMemoryProcess) -> _Live:
        found = next(iter(entry_points(group=GROUP, name="sandbox")), None)
        if found is None:
            raise SetupError(f"an agent of the team writes code for pool {pool!r}, and no sandbox is installed")
        start: StartSandbox = found.load()
        ports = self.ports(process)
        running = await start(pool, ports.bus, ports.blobs, ports.quarantine, self.clock)
        self._serve(process, "code", pool, running.handle, FairLimiter(MAX_AT_WORK))
        return _Live(process, running.interrupt, running.close)

    def _serve(self, process: InMemoryProcess, kind: str, name: str, handler: Handler, limiter: FairLimiter) -> None:
        queue = InMemoryQueue(process, self.stream, self.stream.consumer(kind, name), handler, limiter)
        queue.on_end = self._ended
        process.serve(queue)

    def _ended(self, error: BaseException | None) -> None:
        self.problem = self.problem or error
        self._on_change()

    def _presences(self) -> Iterable[Presence]:
        for spec in self.agents.values():
            yield Presence(instance=spec.name, host="here", pid=0, started_at=0.0, agent=card_of(spec))
        for tool in self.tools.values():
            yield Presence(instance=TOOLS, host="here", pid=0, started_at=0.0, tool=tool.card)

    # --- models

    async def complete(self, agent: str, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Return what the agent's model says. An answer that a killed process did not journal is given once more."""
        digest = f"{agent} {request!r}"
        if unheard := self._unheard.get(digest):
            reply = unheard.pop()
        else:
            self.requests.append(ModelAsked(agent, request))
            reply = await self.models[agent].complete(request, on_text)
        task = asyncio.current_task()
        assert task is not None
        self._replies[task] = (digest, reply)
        return reply


async def _nothing() -> None:
    return None


class _Live(NamedTuple):
    process: InMemoryProcess
    interrupt: Callable[[str], None]
    close: Callable[[], Awaitable[None]] = _nothing


class _Ports(NamedTuple):
    journal: InMemoryJournal
    blobs: InMemoryBlobs
    bus: InMemoryBus
    effects: InMemoryEffects
    quarantine: InMemoryQuarantine
    tallies: InMemoryTallies
    files: InMemoryFileIndex


class _Heard:
    """ports.Model of one agent."""

    def __init__(self, deployment: InMemoryDeployment, agent: str) -> None:
        self._deployment, self._agent = deployment, agent

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        return await self._deployment.complete(self._agent, request, on_text)


class _NoPeers:
    """ports.Peers where only one process at a time runs the tools."""

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        return False


class _CountedInvocations(Invocations):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    async def run(self, tool: AnyTool, call: ToolCall, deliveries: int) -> InvocationOutcome:
        self._counts[call.id] += 1
        return await super().run(tool, call, deliveries)


class TeamWorld(metaclass=Explaining):
    """A deployment in memory as people and their runs see it; `change` is set when something may have come to rest."""

    def __init__(
        self,
        deployment: InMemoryDeployment,
        change: asyncio.Event,
        *,
        real_time: bool = False,
        approves: bool = False,
    ) -> None:
        self._deployment = deployment
        self._change = change
        self.approves = approves
        """True if calls that wait for a person are approved."""
        self._real_time = real_time
        """True if waits take their time, as those for a real endpoint must."""
        self._sent = itertools.count(1)

    def next_number(self) -> int:
        """Return what no record of a person has in its id yet."""
        return next(self._sent)

    async def send(self, record: Record, agent: str) -> None:
        """Put a record into an agent's inbox, as the gateway does."""
        subject = self._deployment.topology.inbox(agent, GATEWAY_SENDER, record.tree, record.run)
        self._deployment.stream.append(subject, encode(record), message_id=record.id)
        await asyncio.sleep(0)

    def run_ids(self) -> list[str]:
        """The ids of all runs, those of members too, in the order in which they began."""
        stream, prefix = self._deployment.stream, f"{self._deployment.topology.prefix}.run."
        return [subject.split(".")[-1] for subject in stream.subjects(lambda one: one.startswith(prefix))]

    def journal(self, run: str, after: int = 0) -> list[Entry]:
        """The entries of a run's journal so far, behind the first `after`; [] for a run that has not begun."""
        subject = self._deployment.topology.journal(run.split("_")[0], run)
        return [decode(message.data, Entry) for message in self._deployment.stream.of_subject(subject)[after:]]

    def stored(self) -> list[tuple[int, Entry]]:
        """The entries of all journals so far with their sequences, in the order in which they were stored."""
        stream, prefix = self._deployment.stream, f"{self._deployment.topology.prefix}.run."
        found = [one for one in stream.messages.values() if one.subject.startswith(prefix)]
        return [(one.seq, decode(one.data, Entry)) for one in sorted(found)]

    def files(self, run: str) -> dict[str, bytes]:
        """The files in the workspace of the run's tree, by path."""
        tree = run.split("_")[0]
        found = [file for (of, _), file in self._deployment.files.items() if of == tree]
        return {file.path: self._deployment.blobs[file.ref] for file in found if file.ref is not None}

    def skip(self, seconds: float) -> None:
        """Move the team's clock on: timers, wait and deadlines that become due go off."""
        self._deployment.clock.skip(seconds)

    def note_change(self) -> None:
        """Have everything that waits for a change look again."""
        self._change.set()

    async def changed(self, until: float | None = None) -> None:
        """Wait until something may have come to rest, or until this time. Raises what a handler, or a model, has
        raised."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(0.0, until - self.now())):
                await self._change.wait()
                self._change.clear()
        await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        """Raise what a handler, or a model, has raised."""
        if self._deployment.problem is not None:
            raise self._deployment.problem

    def is_idle(self) -> bool:
        """Return whether all that is left to do waits for a time or for a person outside."""
        return self._deployment.is_idle()

    async def skip_to_next(self, until: float | None = None) -> None:
        """Move the clock on to what is due next, but not beyond `until`; in real time wait for it."""
        left = self.next_in()
        if left is None or self._real_time:
            await self.changed(until)
        elif until is not None and self.now() + left > until:
            self.skip(until - self.now())
        else:
            self._deployment.clock.skip_to_next()

    def next_in(self) -> float | None:
        """Seconds until the next thing is due by the clock; None when nothing is."""
        return self._deployment.clock.next_in()

    def now(self) -> float:
        """The team's time in Unix seconds."""
        return self._deployment.clock.now()


class _Alarm(NamedTuple):
    due: float
    number: int
    callback: Callable[[], None]


class SkippingClock:
    """ports.Clock: the machine's time and what was skipped of it, in Unix seconds."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._alarms: list[_Alarm] = []
        self._numbers = itertools.count()
        self._cancelled: set[int] = set()
        self._handle: asyncio.TimerHandle | None = None
        self.sleeping: set[asyncio.Task[Any]] = set()
        """The tasks that sleep on this clock."""
        self.on_sleep: Callable[[], None] = lambda: None
        """Called when a task begins to sleep."""

    def now(self) -> float:
        return time.time() + self._skipped

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None

        def wake() -> None:
            self.sleeping.discard(task)  # from now on: it has work to do, though it has not gone on yet
            if not woken.done():
                woken.set_result(None)

        number = self.at(self.now() + seconds, wake)
        self.sleeping.add(task)
        self.on_sleep()
        try:
            await woken
        finally:
            self.sleeping.discard(task)
            self.cancel(number)

    def at(self, due: float, callback: Callable[[], None]) -> int:
        """Calls back at `due`; the number that is returned cancels that."""
        alarm = _Alarm(due, next(self._numbers), callback)
        heapq.heappush(self._alarms, alarm)
        self._set()
        return alarm.number

    def cancel(self, number: int) -> None:
        if any(alarm.number == number for alarm in self._alarms):
            self._cancelled.add(number)

    def skip(self, seconds: float) -> None:
        """Move the clock on; what became due is called back, in its order."""
        self._skipped += seconds
        self._fire()

    def skip_to_next(self) -> bool:
        """Move the clock on to what is due next; False when nothing is to come."""
        if (left := self.next_in()) is None:
            return False
        self.skip(left)
        return True

    def next_in(self) -> float | None:
        """Seconds until what is due next; None when nothing is to come."""
        self._drop_cancelled()
        return max(0.0, self._alarms[0].due - self.now()) if self._alarms else None

    def stop(self) -> None:
        """Call nothing back any more."""
        self._alarms.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _fire(self) -> None:
        while True:
            self._drop_cancelled()
            if not self._alarms or self._alarms[0].due > self.now() + 1e-6:
                break
            heapq.heappop(self._alarms).callback()
        self._set()

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._alarms:
            delay = max(0.0, self._alarms[0].due - self.now())
            # The event loop takes no time further away than its own clock can tell.
            self._handle = asyncio.get_running_loop().call_later(min(delay, 86_400), self._fire)

    def _drop_cancelled(self) -> None:
        while self._alarms and self._alarms[0].number in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._alarms).number)
