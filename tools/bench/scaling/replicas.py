"""Replicas of an agent and of its tools, with a model that takes 200 ms: what each of them adds."""

import asyncio
from typing import NamedTuple

from bench.processes import cpu_seconds
from bench.scaling.deployed import agents, cpu_of, deployed, tools, until_ended
from bench.scaling.table import Row, measure_each
from cadre.protocol.messages import Task
from cadre.protocol.topology import task_id
from harness.stack import Gateway, Stack
from integration.gateway_world import new_run

MODEL_SECONDS = 0.2
STEPS = 10
_RUNS_FOR_EACH_PLACE = 6
_WITHIN = 600.0


class Size(NamedTuple):
    replicas: int
    places: int
    """CADRE_CONCURRENCY of each."""

    def __str__(self) -> str:
        return f"{self.replicas} × {self.places}"


SIZES = (Size(1, 2), Size(2, 2), Size(4, 2), Size(1, 64))
ROWS = {
    "runs": Row(f"runs of {STEPS} steps", "", 0),
    "calls": Row("model calls per second", "", 1),
    "bound": Row("… places / latency of the model", "", 1),
    "share": Row("… of that", "", 2),
    "agent": Row("CPU per step: agents", "ms", 2),
    "tools": Row("… tools", "ms", 2),
    "nats": Row("… NATS", "ms", 2),
    "gateway": Row("… gateway", "ms", 2),
    "model": Row("… the model's endpoint", "ms", 2),
    "busy": Row("processors used by all of them", "", 2),
}


async def submit(stack: Stack, agent: str, text: str, count: int) -> None:
    """Sends so many tasks past the gateway, which is not what is measured."""
    async with stack.platform() as platform:
        for _ in range(count):
            run = new_run()
            at = platform.clock.now()
            await platform.bus.send(Task(id=task_id(run), tree=run, run=run, at=at, agent=agent, task=text), "bench")


def _measure(size: Size) -> dict[str, float]:
    with deployed() as stack:
        stack.environment["CADRE_CONCURRENCY"] = str(size.places)
        services = {
            "agent": agents(stack, "stepper", size.replicas),
            "tools": tools(stack, size.replicas),
            "model": [stack.services["model"]],
        }
        gateway = stack.gateway(start=False)
        services["gateway"] = [gateway.service]
        stack.start_all()
        gateway.wait_offered(1)
        gateway.answer("stepper", "steps: 3")
        before = {name: cpu_of(some) for name, some in services.items()}
        nats = cpu_seconds(stack.nats.pid)
        runs = size.replicas * size.places * _RUNS_FOR_EACH_PLACE
        asyncio.run(submit(stack, "stepper", f"paced steps: {STEPS}", runs))
        until_ended(gateway, "stepper", runs + 1, _WITHIN)
        spent = {name: cpu_of(some) - before[name] for name, some in services.items()}
        spent["nats"] = cpu_seconds(stack.nats.pid) - nats
        seconds = _seconds(gateway, runs)
    calls = runs * (STEPS + 1)
    bound = size.replicas * size.places / MODEL_SECONDS
    return {
        "runs": runs,
        "calls": calls / seconds,
        "bound": bound,
        "share": calls / seconds / bound,
        **{name: cpu * 1e3 / calls for name, cpu in spent.items()},
        "busy": sum(spent.values()) / seconds,
    }


def _seconds(gateway: Gateway, runs: int) -> float:
    """From the first run's beginning to the last one's end."""
    found: list[dict[str, float]] = []
    query: dict[str, str | int] = {"agent": "stepper", "limit": 500}
    while len(found) < runs:
        page = gateway.request("GET", "/v1/runs", params=query).json()
        found += page["runs"]
        query["before"] = page["next"]
    latest = sorted(found, key=lambda one: one["started_at"])[-runs:]
    return max(one["ended_at"] for one in latest) - min(one["started_at"] for one in latest)


def run() -> None:
    """Prints a column for each number of replicas and of places in each."""
    measure_each("replicas", ROWS, {str(size): size for size in SIZES}, _measure)
