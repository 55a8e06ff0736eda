"""Many model calls that are open at once in one process of an agent: the memory and the CPU that they hold."""

import asyncio
import time
from typing import NamedTuple

from bench.processes import cpu_seconds, rss_mb
from bench.scaling.deployed import agents, deployed, metric, until_ended
from bench.scaling.replicas import submit
from bench.scaling.table import Row, measure_each
from harness.patience import eventually
from harness.stack import Stack

_LOOKED_SECONDS = 5.0
_WITHIN = 300.0


class Size(NamedTuple):
    runs: int
    places: int
    """CADRE_CONCURRENCY."""
    agent: str = "talker"
    parallel: int = 10_000
    """The agent's `model.parallel`."""

    @property
    def open(self) -> int:
        return min(self.runs, self.places, self.parallel)


SIZES = {
    "1": Size(1, 600),
    "100": Size(100, 600),
    "500": Size(500, 600),
    "500, 256 places (default)": Size(500, 256),
    "500, parallel: 100": Size(500, 600, "queuing", 100),
}
ROWS = {
    "open": Row("open at the endpoint", "", 0),
    "waiting": Row("that wait for others in the process", "", 0),
    "memory": Row("memory of the agent with them", "MB", 1),
    "each": Row("… more than with none, for each run in hand", "kB", 0),
    "agent": Row("CPU of the agent meanwhile", "%", 1),
    "nats": Row("CPU of NATS meanwhile", "%", 1),
    "ended": Row("from the answers until all runs have ended", "s", 1),
    "run_cpu": Row("CPU of the agent for a run", "ms", 1),
}


def _measure(size: Size) -> dict[str, float]:
    with deployed() as stack:
        stack.environment["CADRE_CONCURRENCY"] = str(size.places)
        [agent] = agents(stack, size.agent)
        gateway = stack.open_gateway(1)
        stack.release_model()
        gateway.answer(size.agent, "Say something.")
        stack.hold_model()
        empty, begun = rss_mb(agent.pid), cpu_seconds(agent.pid)
        asyncio.run(submit(stack, size.agent, "Say something.", size.runs))
        _until_open(stack, size.open)
        memory = rss_mb(agent.pid)
        cpu, nats = cpu_seconds(agent.pid), cpu_seconds(stack.nats.pid)
        time.sleep(_LOOKED_SECONDS)
        values = {
            "open": _open(stack),
            "waiting": metric(agent, "cadre_model_waiting"),
            "memory": memory,
            "each": (memory - empty) * 1e3 / min(size.runs, size.places),
            "agent": (cpu_seconds(agent.pid) - cpu) * 100 / _LOOKED_SECONDS,
            "nats": (cpu_seconds(stack.nats.pid) - nats) * 100 / _LOOKED_SECONDS,
        }
        held = cpu_seconds(agent.pid) - cpu
        began = time.perf_counter()
        stack.release_model()
        until_ended(gateway, size.agent, size.runs + 1, _WITHIN)
        values["ended"] = time.perf_counter() - began
        values["run_cpu"] = (cpu_seconds(agent.pid) - begun - held) * 1e3 / size.runs
        return values


def _open(stack: Stack) -> int:
    return sum(line["outcome"] == "open" for line in stack.model_requests())


def _until_open(stack: Stack, count: int) -> None:
    found = 0

    def all_open() -> bool:
        nonlocal found
        found = _open(stack)
        return found >= count

    eventually(all_open, what=f"{count} requests are open", within=_WITHIN, state=lambda: found)


def run() -> None:
    """Prints a column for each number of calls and of places."""
    measure_each("open calls", ROWS, SIZES, _measure)
