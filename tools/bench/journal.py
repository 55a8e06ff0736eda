"""The size of a journal compared with its observations, and the cost of reading it for a replica that does not have the
run."""

import asyncio
import time
from statistics import median
from typing import Any, NamedTuple

import msgspec

from bench.deployment import Deployment, deployment
from bench.instant import answer, call
from bench.steps import executor
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.streams import jetstream
from cadre.engine.model_request import ModelRequest
from cadre.ports import ModelReply, OnText
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec

_READS = 5


class Length(NamedTuple):
    """A run of so many observations of so many bytes each."""

    observations: int
    size: int


FULL = (Length(20, 1_000), Length(600, 1_000), Length(600, 4_000), Length(3_000, 1_000))
QUICK = (Length(20, 1_000), Length(200, 1_000))


class _Reading:
    """ports.Model: one observation in each step."""

    def __init__(self, length: Length) -> None:
        self._length = length
        self._read = 0

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        if self._read == self._length.observations:
            return answer("all read")
        self._read += 1
        return call("observe", number=self._read, size=self._length.size)


async def measure(lengths: tuple[Length, ...]) -> dict[str, Any]:
    """Return, for each length: the stored bytes by those of the observations, the bytes of an entry without its events
    (mean and largest), and the CPU of reading it."""
    values: dict[str, Any] = {}
    async with deployment() as here, executor(here):
        await here.offered("observe")
        for number, length in enumerate(lengths):
            spec = AgentSpec(
                name=f"reader{number}",
                description="Reads.",
                tools=["observe"],
                limits=Limits(max_steps=length.observations + 5, repeats=0),
                model=ModelSpec(context=100_000_000),
            )
            await here.serve(spec, _Reading(length))
            task = here.task(spec.name, "Read it all.")
            await here.run(task)
            found = await _stored(here, task, length) | await _read(here, task)
            suffix = f"_{length.observations}_{length.size}"
            values |= {f"journal_{name}{suffix}": value for name, value in found.items()}
    return values


async def _stored(here: Deployment, task: Task, length: Length) -> dict[str, Any]:
    topology, nc = here.platform.topology, here.platform.nc
    stored = await here.platform.journal.read(task.tree, task.run)
    held = [await jetstream.get(nc, topology.stream_of(task.tree), one.seq) for one in stored]
    data = [one.data for one in held if one is not None]
    beyond = [len(one) - _events(one) for one in data]
    return {
        "ratio": sum(map(len, data)) / (length.observations * length.size),
        "beyond": sum(beyond) / len(beyond),
        "most_beyond": max(beyond),
        "entries": len(data),
    }


def _events(data: bytes) -> int:
    """The bytes of the events in an entry as it is stored."""
    return len(bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["events"]))


async def _read(here: Deployment, task: Task) -> dict[str, Any]:
    platform = here.platform
    journal = NatsJournal(platform.nc, platform.topology, platform.blobs)
    spent, took = [], []
    for _ in range(_READS):
        cpu, clock = time.process_time(), time.perf_counter()
        entries = await journal.read(task.tree, task.run)
        spent.append((time.process_time() - cpu) * 1e6 / len(entries))
        took.append((time.perf_counter() - clock) * 1e6 / len(entries))
        await asyncio.sleep(0)
    return {"read_cpu_us": median(spent), "read_us": median(took)}
