"""The CPU that one step costs the process of an agent: early, late, and what of it is not the bus's own price.

A step is a model's answer that calls a tool and the tool's result: two journal entries and one call, which are
published here, and one result, which comes in. The tool runs in a real executor process. CPU is the agent's alone.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

from bench.deployment import Deployment, deployment
from bench.paced import STEPS, Gate, PacedModel
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode
from cadre.journal.entry import Entry
from cadre.journal.events import ModelCalled
from cadre.settings import child_environment
from cadre.spec.agent import AgentSpec, Limits
from harness.stack import Service

STRETCH = 10
FIRST, LAST = 1, STEPS - STRETCH + 1
"""The first step of either measured stretch."""


class Append(NamedTuple):
    subject: str
    data: bytes


class Cost(NamedTuple):
    """CPU milliseconds per step, and steps per second on the way."""

    first: float
    last: float
    rate: float


class Recorded(NamedTuple):
    """Messages that the agent published in one run."""

    first: list[Append]
    last: list[Append]
    entries: int
    events: int


async def measure(rounds: int, group: int) -> dict[str, Any]:
    """`rounds` of one run alone and of `group` runs at once."""
    async with deployment() as here, executor(here):
        model = PacedModel()
        spec = AgentSpec(
            name="stepper",
            description="Looks things up.",
            tools=["lookup"],
            limits=Limits(max_steps=STEPS + 5),
        )
        await here.serve(spec, model)
        await here.offered("lookup")
        recorded = await _record(here)
        await stretches(here, model, group)
        values: dict[str, Any] = {
            "events_per_step": recorded.events / STEPS,
            "entries_per_step": recorded.entries / STEPS,
        }
        for suffix, at_once in (("", 1), (f"_{group}_runs", group)):
            values |= await _compare(here, model, recorded, rounds, at_once, suffix)
        return values


async def _compare(
    here: Deployment, model: PacedModel, recorded: Recorded, rounds: int, group: int, suffix: str
) -> dict[str, Any]:
    """Steps and the bare bus in turns, so that both see the same machine."""
    costs: list[Cost] = []
    bus: list[tuple[float, float]] = []
    for _ in range(rounds):
        costs.append(await stretches(here, model, group))
        bus.append((await _replayed(here, recorded.first, group), await _replayed(here, recorded.last, group)))
    first, last = median(cost.first for cost in costs), median(cost.last for cost in costs)
    bus_first, bus_last = median(b[0] for b in bus), median(b[1] for b in bus)
    return {
        f"step_cpu_ms_first{suffix}": first,
        f"step_cpu_ms_last{suffix}": last,
        f"step_bus_cpu_ms_first{suffix}": bus_first,
        f"step_bus_cpu_ms_last{suffix}": bus_last,
        f"step_cpu_beyond_bus_ms_first{suffix}": first - bus_first,
        f"step_cpu_beyond_bus_ms_last{suffix}": last - bus_last,
        f"step_cpu_growth{suffix}": (last - bus_last) / (first - bus_first),
        f"steps_per_second{suffix}": median(cost.rate for cost in costs),
    }


async def stretches(here: Deployment, model: PacedModel, group: int) -> Cost:
    steps = (FIRST, FIRST + STRETCH, LAST, LAST + STRETCH)
    model.gates = {step: Gate(group) for step in steps}
    runs = [asyncio.create_task(here.run(here.task("stepper", "Look it all up."))) for _ in range(group)]
    cpu: list[float] = []
    clock: list[float] = []
    for step in steps:
        await model.gates[step].full()
        cpu.append(time.process_time())
        clock.append(time.perf_counter())
        model.gates[step].open()
    await asyncio.gather(*runs)
    model.gates = {}
    per_step = 1e3 / (STRETCH * group)
    return Cost(
        first=(cpu[1] - cpu[0]) * per_step,
        last=(cpu[3] - cpu[2]) * per_step,
        rate=STEPS * group / (clock[3] - clock[0]),
    )


async def _record(here: Deployment) -> Recorded:
    """One run alone, read back from its stream: every message that its agent appended, and at which step."""
    task = here.task("stepper", "Look it all up.")
    topology, nc = here.platform.topology, here.platform.nc
    stream = topology.stream_of(task.tree)
    before = (await jetstream.api(nc, f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    await here.run(task)
    end = (await jetstream.api(nc, f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    journal, calls = topology.journal(task.tree, task.run), f"{topology.prefix}.call."
    of_step: dict[int, list[Append]] = {}
    step, entries, events = 0, 0, 0
    for held in await asyncio.gather(*(jetstream.get(nc, stream, seq) for seq in range(before + 1, end + 1))):
        if held is None or not (held.subject == journal or held.subject.startswith(calls)):
            continue
        of_step.setdefault(step, []).append(Append(held.subject, held.data))
        if held.subject == journal:
            entry: Entry = decode(held.data, Entry)
            entries, events = entries + 1, events + len(entry.events)
            # A stretch begins when its first model call is journaled.
            step = next((event.step for event in entry.events if isinstance(event, ModelCalled)), step)
    first, last = (
        [append for step in range(begin, begin + STRETCH) for append in of_step[step]] for begin in (FIRST, LAST)
    )
    return Recorded(first, last, entries, events)


async def _replayed(here: Deployment, appends: list[Append], group: int) -> float:
    """CPU milliseconds per step of appending the same bytes in the same order, `group` times at once."""
    before = time.process_time()
    await asyncio.gather(*(_append_all(here, appends) for _ in range(group)))
    return (time.process_time() - before) * 1e3 / (STRETCH * group)


async def _append_all(here: Deployment, appends: list[Append]) -> None:
    nc, run, fence = here.platform.nc, uuid4().hex, 0
    for n, (subject, data) in enumerate(appends):
        prefix, kind, shard, *_ = subject.split(".")
        if kind == "run":
            fence = await jetstream.append(nc, f"{prefix}.run.{shard}.{run}.{run}", data, expect=fence)
        else:
            # Where no executor takes it.
            aside = f"{prefix}.code.{shard}.lookup.stepper.{run}.{run}_{n}"
            headers = {jetstream.TTL: "168h", jetstream.MESSAGE_ID: f"{run}_{n}"}
            await jetstream.append(nc, aside, data, headers=headers)


def executor(here: Deployment) -> AbstractAsyncContextManager[Service]:
    return running_service(here, "cadre_tools", str(Path(__file__).parent / "lookup.py"))


@asynccontextmanager
async def running_service(here: Deployment, *arguments: str, **environment: str) -> AsyncIterator[Service]:
    """A service of the deployment as its own process, once it is ready."""
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
        variables = child_environment(CADRE_NATS_URL=here.nats.url, **environment)
        command = list(arguments)
        service = Service(arguments[0], command, variables, Path(folder))
        if arguments[0] == "cadre_scripted_model":
            command += ["--port", str(service.port)]  # it reads no setting
        try:
            await asyncio.to_thread(service.start)
            yield service
        finally:
            if service.is_running:
                await asyncio.to_thread(service.terminate)
