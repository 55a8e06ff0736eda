"""One delegation, durable from end to end, next to a core NATS request and reply between the same processes.

A delegation here is the whole of it: a task sent to the manager, its run, the member's run, the report, and the
manager's answer journaled: two runs, three model calls, three messages and six journal entries, each one fsynced.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import uuid4

from bench.deployment import Deployment, deployment
from bench.floor import BOSS, Relay
from bench.instant import InstantModel, answer, call
from bench.processes import Member, cpu_seconds
from bench.worker import ECHO
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.engine.model_request import ModelRequest
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec

IN_FLIGHT = 64
MODEL_CALLS = 3
TASK = "Please find out what the others have left to do. " * 4

Operation = Callable[[], Awaitable[object]]


class Size(NamedTuple):
    """The size of a measurement."""

    singles: int
    rounds: int
    delegations: int
    requests: int
    appends: int


FULL = Size(singles=600, rounds=7, delegations=1000, requests=12_000, appends=4_000)
QUICK = Size(singles=150, rounds=3, delegations=400, requests=6_000, appends=2_000)


def decide(request: ModelRequest) -> ModelReply:
    if request.messages[-1]["role"] == "tool":
        return answer("all done")
    return call("worker", task=TASK)


class Pair:
    """The manager in this process, the member in another."""

    def __init__(self, here: Deployment, member: Member, relay: Relay) -> None:
        self._here = here
        self.relay = relay.delegate
        self._payload = encode(here.task("boss", TASK))
        self.shards = here.platform.topology.shards
        self.pids = {"manager": [os.getpid()], "worker": [member.pid], "nats": here.nats.pids}

    async def delegate(self) -> None:
        end = await self._here.run(self._here.task("boss", TASK))
        if end.usage.model_calls != MODEL_CALLS:
            raise RuntimeError(f"nothing was delegated: {end}")

    async def request(self) -> None:
        await self._here.platform.nc.request(ECHO, self._payload, timeout=10)

    async def append(self) -> None:
        """Append as each message of a delegation does: one fenced write of its size, fsynced."""
        run = uuid4().hex
        subject = self._here.platform.topology.journal(run, run)
        await jetstream.append(self._here.platform.nc, subject, self._payload, expect=0)

    async def stored(self) -> int:
        """Messages that the shards have ever stored."""
        return sum(state["last_seq"] for state in await self._here.streams())

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU so far by process, the NATS servers together."""
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self.pids.items()}


@asynccontextmanager
async def working_pair(shards: int | None = None, sync: str = "always", servers: int = 1) -> AsyncIterator[Pair]:
    """A warm pair on NATS servers that nothing else uses, as of `deployment`."""
    async with deployment(shards, sync, servers) as here:
        member = await Member.start(here.nats.url, here.platform.topology.shards)
        try:
            await here.serve(AgentSpec(name="boss", description="Delegates.", team=["worker"]), InstantModel(decide))
            await here.offered("worker")
            relay = Relay(here.platform, BOSS, encode(here.task("boss", TASK)))
            await relay.start()
            pair = Pair(here, member, relay)
            await flood(pair.delegate, 200)
            await flood(pair.relay, 200)
            await flood(pair.request, 1000)
            yield pair
            await relay.drain()
        finally:
            await member.stop()


async def measure(size: Size, shards: int | None = None) -> dict[str, Any]:
    async with working_pair(shards) as pair:
        values: dict[str, Any] = {"shards": pair.shards}
        return values | await _one_at_a_time(pair, size) | await _many_at_once(pair, size)


async def _one_at_a_time(pair: Pair, size: Size) -> dict[str, Any]:
    delegations: list[float] = []
    requests: list[float] = []
    appends: list[float] = []
    relays: list[float] = []
    for _ in range(size.singles):
        delegations.append(await timed(pair.delegate))
        relays.append(await timed(pair.relay))
        requests.append(await timed(pair.request))
        requests.append(await timed(pair.request))
        appends.append(await timed(pair.append))
    return {
        "delegation_p50_ratio": median(delegations) / median(requests),
        "relay_p50_ratio": median(relays) / median(requests),
        **_percentiles("relay", relays),
        **_percentiles("delegation", delegations),
        **_percentiles("core_rr", requests),
        **_percentiles("append", appends),
    }


async def _many_at_once(pair: Pair, size: Size) -> dict[str, Any]:
    delegated: list[float] = []
    requested: list[float] = []
    appended: list[float] = []
    relayed: list[float] = []
    spent = dict.fromkeys(pair.pids, 0.0)
    latencies: list[float] = []
    messages = 0
    for _ in range(size.rounds):
        stored = await pair.stored()
        before = pair.cpu()
        rate, round_latencies = await flood(pair.delegate, size.delegations)
        for name, after in pair.cpu().items():
            spent[name] += after - before[name]
        delegated.append(rate)
        latencies += round_latencies
        messages += await pair.stored() - stored
        relayed.append((await flood(pair.relay, size.delegations))[0])
        requested.append((await flood(pair.request, size.requests))[0])
        appended.append((await flood(pair.append, size.appends))[0])
    count = size.rounds * size.delegations
    return {
        "delegation_throughput_ratio": median(d / r for d, r in zip(delegated, requested, strict=True)),
        "relay_throughput_ratio": median(r / c for r, c in zip(relayed, requested, strict=True)),
        "relays_per_second": median(relayed),
        "delegations_per_second": median(delegated),
        "core_rr_per_second": median(requested),
        "appends_per_second": median(appended),
        "delegation_messages": messages / count,
        "delegations_per_second_rounds": delegated,
        "core_rr_per_second_rounds": requested,
        "appends_per_second_rounds": appended,
        **_percentiles("delegation_at_64", latencies),
        **{f"delegation_cpu_us_{name}": seconds / count * 1e6 for name, seconds in spent.items()},
    }


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    return {f"{name}_p50_ms": median(seconds) * 1e3, f"{name}_p99_ms": quantiles(seconds, n=100)[98] * 1e3}


async def timed(operation: Operation) -> float:
    """Seconds that one operation takes."""
    started = time.perf_counter()
    await operation()
    return time.perf_counter() - started


async def flood(operation: Operation, count: int, in_flight: int = IN_FLIGHT) -> tuple[float, list[float]]:
    """`count` operations, so many at a time: how many per second, and the seconds that each took."""
    latencies: list[float] = []
    left = count

    async def one_after_another() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            latencies.append(await timed(operation))

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_another())
    return count / (time.perf_counter() - started), latencies
