"""Many runs at once on a real server: all of them end, memory stays bounded, and a large tree starves no one."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from nats.aio.msg import Msg

from bench.deployment import Deployment, deployment
from bench.instant import InstantModel, answer
from bench.processes import PYTHONPATH, Member, rss_mb
from cadre.adapters.nats.connection.connect import settled
from cadre.engine.model_request import ModelRequest
from cadre.journal.entry import Entry
from cadre.journal.events import RequestedCall, RunFinished
from cadre.ports import ModelReply
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec, Limits
from harness.patience import patience

FLOOD = 10_000
CHILDREN = 1_000
SMALL = 20

AT_ONCE = 256
"""Tasks being published at the same time."""

MEMORY_MB = 120
"""The memory that a flood may cost an agent: 512 folded runs, 512 messages in hand, the allocator's slack."""


class Ends:
    """Hears every run end, in order."""

    def __init__(self, here: Deployment) -> None:
        self._here = here
        self.order: list[str] = []
        self.states: dict[str, str] = {}
        self._news = asyncio.Event()

    async def listen(self) -> None:
        nc, topology = self._here.platform.nc, self._here.platform.topology
        for shard in range(topology.shards):
            await nc.subscribe(topology.journals_of_shard(shard), cb=self._hear)
        await settled(nc)

    async def _hear(self, message: Msg) -> None:
        entry = msgspec.json.decode(message.data, type=Entry)
        end = entry.events[-1]
        if isinstance(end, RunFinished) and entry.run not in self.states:
            self.order.append(entry.run)
            self.states[entry.run] = end.state
            self._news.set()

    async def all_of(self, runs: set[str], within: float) -> None:
        async with asyncio.timeout(within):
            while not runs <= self.states.keys():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def here() -> AsyncIterator[Deployment]:
    async with deployment() as one:
        yield one


async def send_all(here: Deployment, tasks: list[Task]) -> set[str]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def send(task: Task) -> None:
        async with slots:
            await here.platform.bus.send(task, "test")

    await asyncio.gather(*(send(task) for task in tasks))
    return {task.run for task in tasks}


@pytest.mark.timeout(420)
async def test_ten_thousand_tasks_wait_for_their_agent_and_all_are_served(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    ends = Ends(here)
    await ends.listen()
    runs = await send_all(here, [here.task("worker", "Be quick.") for _ in range(FLOOD)])
    member = await Member.start(here.nats.url, here.platform.topology.shards)
    try:
        begin = rss_mb(member.pid)
        await ends.all_of(runs, within=patience(360))
        grown = rss_mb(member.pid) - begin
    finally:
        await member.stop()
    assert {ends.states[run] for run in runs} == {"success"}
    assert len(ends.order) == FLOOD, "each ended once"
    assert grown < MEMORY_MB, f"{begin:.0f} MB before, {grown:.0f} MB more after"


@pytest.mark.timeout(300)
async def test_a_tree_of_a_thousand_does_not_starve_the_small_runs_behind_it(here: Deployment) -> None:
    """The boss asks a thousand kids at once; twenty small runs come right behind it."""

    def decide(request: ModelRequest) -> ModelReply:
        text = str(request.messages)
        if "asked-for" in text:
            return answer("done")
        count = CHILDREN if "everybody" in text else 1
        arguments = msgspec.json.encode({"task": "asked-for"}).decode()
        return ModelReply(calls=[RequestedCall("kid", arguments)] * count)

    kid = AgentSpec(name="kid", description="Answers.")
    boss = AgentSpec(name="boss", description="Asks.", team=["kid"], limits=Limits(repeats=0))
    await here.serve(kid, InstantModel(lambda _: answer("asked-for")))
    await here.serve(boss, InstantModel(decide))
    await here.offered("kid", "boss")
    ends = Ends(here)
    await ends.listen()
    big = here.task("boss", "Ask everybody.")
    await here.platform.bus.send(big, "test")
    small = await send_all(here, [here.task("boss", "Ask one.") for _ in range(SMALL)])
    await ends.all_of({big.run, *small}, within=patience(240))
    assert {ends.states[run] for run in {big.run, *small}} == {"success"}
    assert sum(run.startswith(f"{big.run}_") for run in ends.order) == CHILDREN
    last_small = max(ends.order.index(run) for run in small)
    children_before = sum(run.startswith(f"{big.run}_") for run in ends.order[:last_small])
    assert children_before < CHILDREN / 2
