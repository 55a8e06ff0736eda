"""One run of so many steps: its last steps next to its first, a replica that takes it over, those who read it."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2

from bench.processes import cpu_of_command, cpu_seconds
from bench.scaling.deployed import TEAM, agents, deployed, stored_bytes, tools
from bench.scaling.recorded_model import recorded_model
from bench.scaling.table import Row, measure_each
from bench.weight import CADRE
from harness.patience import patience
from harness.stack import Gateway, Service, Stack

SIZES = (100, 500, 2_000)
STRETCH = 40
"""Steps whose CPU is taken together, at either end."""
_LEFT = 10
"""Steps before the end at which the agent is killed."""

_READS = {
    "show": "GET of the run",
    "full": "GET with its memory",
    "trace": "its trace",
    "verify": "its hash chain checked",
    "events": "its events",
}
ROWS = {
    "first": Row(f"CPU of the agent per step, first {STRETCH}", "ms", 2),
    "last": Row(f"… last {STRETCH}", "ms", 2),
    "growth": Row("… last / first", "", 2),
    "first_s": Row(f"time of a step, first {STRETCH}", "ms", 1),
    "last_s": Row(f"… last {STRETCH}", "ms", 1),
    "request": Row("the last request", "kB", 0),
    "nats": Row("CPU of NATS per step", "ms", 2),
    "gateway": Row("CPU of the gateway per step", "ms", 2),
    "stored": Row("stored bytes per step", "kB", 2),
    "cold": Row("a cold replica: CPU from its start until it asks the model", "s", 2),
    "handed": Row("… from the kill", "s", 1),
    **{name: Row(f"{what}, CPU of the gateway", "ms", 0) for name, what in _READS.items()},
    "cli": Row("`cadre show`, its own CPU", "s", 2),
}


class Mark(NamedTuple):
    """CPU time spent when a request came."""

    at: float
    agent: float
    size: int


class Watch:
    """Notes, at each request of the run, what its agent has spent; at one of them it kills the agent."""

    def __init__(self, kill_at: int) -> None:
        self.agent: Service | None = None
        self.marks: list[Mark] = []
        self.killed = threading.Event()
        self._kill_at = kill_at

    def tell(self, body: bytes) -> None:
        if self.agent is not None and not self.killed.is_set():
            self.marks.append(Mark(time.perf_counter(), cpu_seconds(self.agent.pid), len(body)))
            if len(self.marks) == self._kill_at:
                self.agent.kill()
                self.killed.set()


def _measure(steps: int) -> dict[str, float]:
    watch = Watch(kill_at=steps - _LEFT)
    with deployed() as stack, recorded_model(TEAM / "script.yaml", lambda body: watch.tell(body)) as url:
        stack.environment["CADRE_MODEL_URL"] = url
        [first, second] = agents(stack, "stepper", 2)
        tools(stack)
        gateway = stack.gateway(start=False)
        del stack.services[second.name]
        stack.start_all()
        gateway.wait_offered(1)
        gateway.answer("stepper", "steps: 5")
        stored = asyncio.run(stored_bytes(stack))
        watch.agent = first
        spent = cpu_seconds(stack.nats.pid), cpu_seconds(gateway.service.pid)
        run = gateway.submit("stepper", f"steps: {steps}")
        if not watch.killed.wait(steps * patience(1)):
            raise RuntimeError(f"{len(watch.marks)} of {steps} steps were made in this time")
        nats = cpu_seconds(stack.nats.pid) - spent[0]
        listing = cpu_seconds(gateway.service.pid) - spent[1]
        values = _taken_over(second, watch, stack)
        gateway.finished(run, within=300)
        values["stored"] = (asyncio.run(stored_bytes(stack)) - stored) / 1e3 / steps
        values |= _stretches(watch.marks)
        values |= {"nats": nats * 1e3 / len(watch.marks), "gateway": listing * 1e3 / len(watch.marks)}
        return values | _read(gateway, run)


def _taken_over(second: Service, watch: Watch, stack: Stack) -> dict[str, float]:
    """Has the other replica go on."""
    asked = threading.Event()
    spent: list[float] = []

    def tell(body: bytes) -> None:
        if not asked.is_set():
            spent.append(cpu_seconds(second.pid))
            asked.set()

    watch.tell = tell  # type: ignore[method-assign]
    killed = time.perf_counter()
    stack.services[second.name] = second
    second.start(wait=False)
    if not asked.wait(patience()):
        raise RuntimeError("nobody took the run over")
    handed = time.perf_counter() - killed
    second.wait_ready()
    return {"cold": spent[0], "handed": handed}


def _stretches(marks: list[Mark]) -> dict[str, float]:
    first = marks[0], marks[STRETCH]
    last = marks[-STRETCH - 1], marks[-1]
    cpu = [(end.agent - begin.agent) * 1e3 / STRETCH for begin, end in (first, last)]
    seconds = [(end.at - begin.at) * 1e3 / STRETCH for begin, end in (first, last)]
    return {
        "first": cpu[0],
        "last": cpu[1],
        "growth": cpu[1] / cpu[0],
        "first_s": seconds[0],
        "last_s": seconds[1],
        "request": marks[-1].size / 1e3,
    }


def _read(gateway: Gateway, run: str) -> dict[str, float]:
    """Milliseconds of the gateway's CPU for each way to look at the run."""
    path = f"/v1/runs/{run}"
    asks: dict[str, Callable[[], Any]] = {
        "show": lambda: _get(gateway, path),
        "full": lambda: _get(gateway, path, full="true"),
        "trace": lambda: _get(gateway, f"{path}/trace"),
        "verify": lambda: _get(gateway, f"{path}/verify"),
        "events": lambda: sum(1 for _ in gateway.events(run)),
    }
    found = {}
    for name, ask in asks.items():
        before = cpu_seconds(gateway.service.pid)
        ask()
        found[name] = (cpu_seconds(gateway.service.pid) - before) * 1e3
    found["cli"] = cpu_of_command(str(CADRE), "show", run, CADRE_GATEWAY_URL=gateway.service.url)
    return found


def _get(gateway: Gateway, path: str, **query: str) -> httpx2.Response:
    return gateway.request("GET", path, params=query).raise_for_status()


def run() -> None:
    """Prints a column for each number of steps."""
    measure_each("long journal", ROWS, {f"{steps:,} steps": steps for steps in SIZES}, _measure)
