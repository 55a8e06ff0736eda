"""One table of what grows: the same work small and large, and the cost of a unit of the large as a ratio to the small.

CPU is that of all processes of the deployment; the scripted model's is not counted, but its time is in the time.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
import httpx2
import msgspec
import uvloop

from bench.processes import cpu_seconds
from bench.scaling import kept_runs
from bench.scaling.table import keep, say
from harness.stack import Gateway, Stack

LOOKUP = Path(__file__).parents[1] / "lookup.py"
ROUNDS = 3
_LATENCY = 0.3
_WITHIN = 600


class Work(NamedTuple):
    """Runs of an agent whose task says how large they are; `units` of a size share the cost of all of them."""

    what: str
    agent: str
    task: str
    small: int
    large: int
    runs: bool = False
    """The size is the number of runs at once, and not of what the task asks for."""

    def tasks(self, size: int) -> list[str]:
        return [self.task] * size if self.runs else [self.task.format(size)]


WORKS = {
    "steps": Work("a step with 4 kB, in a run of so many", "reader", "pages: {}", 50, 500),
    "members": Work("a member, so many in one step", "manager", "members: {}", 10, 100),
    "depth": Work("a level of delegation, in a tree so deep", "digger", "levels: {}", 2, 10),
    "runs": Work(
        f"a run, so many at once, with a model of {_LATENCY * 1e3:.0f} ms", "talker", "Say it.", 20, 200, True
    ),
}

KEPT = {
    "entry": ("CPU of reading an entry", "µs"),
    "a page": ("a page of the list, CPU", "ms"),
    "a filter that finds few": ("a filter that finds few, CPU", "ms"),
    "post": ("POST of a run, p50", "ms"),
    "run_cpu": ("CPU of the agent for a run", "ms"),
    "memory": ("memory of the gateway", "MB"),
    "start_cpu": ("CPU of a gateway's start with its index", "s"),
    "nats_restarted": ("memory of NATS after its restart", "MB"),
    "disk": ("disk per run", "kB"),
}
"""Figures of `kept_runs`, and their units."""


class Line(NamedTuple):
    """A line of the table: a figure of the small and of the large."""

    what: str
    sizes: tuple[int, int]
    unit: str
    small: float
    large: float


def run(kept: Sequence[int] = ()) -> None:
    """Prints the table, which has the fewest and the most kept runs if their numbers are given."""
    lines = uvloop.run(_measured())
    if kept:
        lines += _of_kept_runs((kept[0], kept[-1]), uvloop.run(kept_runs.measure(kept)))
    keep("growth", [line.what for line in lines], [line._asdict() for line in lines])
    for text in table(lines):
        click.echo(text)


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Return the lines of a table in Markdown."""
    yield "| | small | large | of the small | of the large | large / small |"
    yield "|---|---:|---:|---:|---:|---:|"
    for line in lines:
        small, large = line.sizes
        figures = f"{line.small:,.2f} {line.unit} | {line.large:,.2f} {line.unit}"
        # Fewer ticks of the kernel's clock than one are no ratio.
        ratio = f"{line.large / line.small:.2f} ×" if line.small else ""
        yield f"| {line.what} | {small:,} | {large:,} | {figures} | {ratio} |"


async def _measured() -> list[Line]:
    found: list[Line] = []
    with _deployed() as (stack, gateway):
        async with httpx2.AsyncClient(
            base_url=gateway.service.url, trust_env=False, timeout=_WITHIN, limits=httpx2.Limits(max_connections=None)
        ) as http:
            for name, work in WORKS.items():
                say(f"growth: {name}")
                await _played(stack, http, work, work.small)
                rounds = [
                    [await _played(stack, http, work, size) for size in (work.small, work.large)] for _ in range(ROUNDS)
                ]
                for place, unit in enumerate(("ms of CPU", "ms")):
                    small, large = (median(one[size][place] * 1e3 for one in rounds) for size in (0, 1))
                    found.append(Line(work.what, (work.small, work.large), unit, small, large))
    return found


async def _played(stack: Stack, http: httpx2.AsyncClient, work: Work, size: int) -> tuple[float, float]:
    """Seconds of CPU and of time for each unit; of runs at once, the time of all."""
    before, began = _cpu(stack), time.perf_counter()
    await asyncio.gather(*(_answered(http, work.agent, task) for task in work.tasks(size)))
    took = time.perf_counter() - began
    return (_cpu(stack) - before) / size, took if work.runs else took / size


async def _answered(http: httpx2.AsyncClient, agent: str, task: str) -> None:
    wanted = {"agent": agent, "task": task}
    answer = await http.post("/v1/runs", json=wanted, headers={"Prefer": f"wait={_WITHIN}"})
    if answer.status_code != httpx2.codes.OK or answer.json()["output"] != "done":
        raise RuntimeError(f"{task}: {answer.text}")


def _cpu(stack: Stack) -> float:
    own = [service.pid for name, service in stack.services.items() if name != "model"]
    return sum(map(cpu_seconds, [*own, *stack.nats.pids]))


@contextmanager
def _deployed() -> Iterator[tuple[Stack, Gateway]]:
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as name, Stack(Path(name)) as stack:
        del stack.environment["CADRE_SHARDS"]
        folder = Path(name)
        (folder / "script.yaml").write_bytes(msgspec.yaml.encode({"rules": _rules()}))
        stack.model(folder / "script.yaml")
        for agent, spec in _specs().items():
            document = {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": agent}, "spec": spec}
            (folder / f"{agent}.yaml").write_bytes(msgspec.yaml.encode(document))
            stack.agent(folder / f"{agent}.yaml", start=False)
        stack.tools(LOOKUP, start=False)
        yield stack, stack.open_gateway(len(_specs()))


def _specs() -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = {
        "reader": {"tools": ["read_page"], "model": {"context": 10_000_000}, "limits": {"max_steps": 1_000}},
        "manager": {"team": ["leaf"], "limits": {"parallel": 100}},
        "leaf": {},
        "digger": {"team": ["digger"], "limits": {"depth": 20, "cycles": 20}},
        "talker": {},
    }
    return {
        name: {"description": f"The {name}.", "instructions": f"You are the {name}.", **spec}
        for name, spec in specs.items()
    }


def _rules() -> list[dict[str, Any]]:
    def calls(*calls: tuple[str, Mapping[str, object]], **more: object) -> dict[str, Any]:
        return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls], **more}

    done = calls(("final_answer", {"answer": "done"}))
    pages, levels = "number(user, 'pages: (\\d+)')", "number(user, 'levels: (\\d+)')"
    deeper = {"task": f"{{{{ 'levels: %d' % ({levels} - 1) }}}}"}
    rules: list[dict[str, Any]] = [
        {
            "match": {"system": "You are the reader"},
            "reply": {
                "tool_calls": [
                    {
                        "name": f"{{{{ 'read_page' if turn < {pages} else 'final_answer' }}}}",
                        "arguments": f"{{{{ {{'number': turn}} if turn < {pages} else {{'answer': 'done'}} }}}}",
                    }
                ]
            },
        },
        {"match": {"system": "You are the digger", "user": "levels: 0"}, "reply": done},
        {"match": {"system": "You are the digger", "turn": 0}, "reply": calls(("digger", deeper))},
        {"match": {"system": "You are the talker"}, "reply": {**done, "latency": _LATENCY}},
    ]
    for size in (WORKS["members"].small, WORKS["members"].large):
        asked = [("leaf", {"task": f"Do part {number}."}) for number in range(size)]
        match = {"system": "You are the manager", "user": f"members: {size}\\b", "turn": 0}
        rules.append({"match": match, "reply": calls(*asked)})
    rules.append({"match": {}, "reply": done})
    return [{"name": f"rule {number}", **rule} for number, rule in enumerate(rules)]


def _of_kept_runs(sizes: tuple[int, int], found: Sequence[Mapping[str, float]]) -> list[Line]:
    return [
        Line(f"kept runs: {what}", sizes, unit, found[0][key], found[-1][key]) for key, (what, unit) in KEPT.items()
    ]
