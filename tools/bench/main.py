"""`make bench`: measures, says what reaches its target and what does not, writes build/bench.json."""

import json
import logging
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
import uvloop

from bench import (
    code,
    delegation,
    endpoint,
    journal,
    kill,
    memory,
    metrics,
    recall,
    report,
    steps,
    sync,
    tracing,
    waiting,
    weight,
    workflow_steps,
)
from bench.processes import machine

OUTPUT = Path(__file__).parents[2] / "build" / "bench.json"
SWEPT = (1, 2, 4, 8)
PASSES = 2


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the samples; figures scatter more.")
@click.option("--shards-sweep", "sweep", is_flag=True, help=f"Instead: delegations with {SWEPT} shards.")
@click.option("--output", type=click.Path(path_type=Path), default=OUTPUT, help="[default: build/bench.json]")
def main(quick: bool, sweep: bool, output: Path) -> None:
    """Measure this checkout on this machine. A missed target is said and is no failure."""
    # What a killed member or a closing connection makes the library say is not news here.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    started, here = time.monotonic(), machine()
    values = _sweep(quick) if sweep else _measure(quick)
    values["quick"] = quick
    values["took_s"] = time.monotonic() - started
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report.document(values, here), indent=2) + "\n")
    if sweep:
        report.show(report.sweep_table(values["by_shards"]))
    else:
        report.show(report.table(values))
        click.echo(report.conclusion(values))
    click.echo(f"{values['took_s']:.0f} s; all figures: {os.path.relpath(output)}")


def _measure(quick: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    _say("delegations")
    values |= uvloop.run(delegation.measure(delegation.QUICK if quick else delegation.FULL))
    _say("the price of the disk")
    values |= uvloop.run(sync.measure(sync.QUICK if quick else sync.FULL))
    _say("steps")
    values |= uvloop.run(steps.measure(rounds=4 if quick else 16, group=16))
    _say("what a journal stores")
    values |= uvloop.run(journal.measure(journal.QUICK if quick else journal.FULL))
    _say("steps of a growing conversation with an endpoint")
    values |= uvloop.run(endpoint.measure(rounds=1 if quick else 3))
    _say("steps of a workflow")
    values |= uvloop.run(workflow_steps.measure(rounds=4 if quick else 16))
    _say("code")
    values |= uvloop.run(code.measure(code.QUICK if quick else code.FULL))
    _say("steps with a tracer at work")
    values |= uvloop.run(tracing.measure(rounds=2 if quick else 6, group=16))
    _say("steps with metrics counted")
    values |= uvloop.run(metrics.measure(rounds=3 if quick else 12, group=16))
    _say("a member killed")
    values |= uvloop.run(kill.measure(times=1 if quick else 3))
    _say("runs that wait for a person")
    values |= uvloop.run(waiting.measure(waiting.QUICK if quick else waiting.FULL, idle_seconds=2 if quick else 5))
    _say("memories stored and found")
    values |= uvloop.run(memory.measure(quick))
    _say("what is recalled")
    values |= uvloop.run(recall.measure())
    _say("memory, command line, start of a team")
    values |= weight.measure(idle_seconds=2 if quick else 5, runs=10 if quick else 40, repeats=1 if quick else 5)
    return values


def _sweep(quick: bool) -> dict[str, Any]:
    """Each number of shards on a fresh server, several passes in turn; the median of the passes."""
    size = delegation.QUICK if quick else delegation.FULL
    found: dict[int, list[dict[str, Any]]] = {shards: [] for shards in SWEPT}
    for _ in range(PASSES):
        for shards in SWEPT:
            _say(f"delegations, shards: {shards}")
            found[shards].append(uvloop.run(delegation.measure(size, shards)))
    by_shards = {
        shards: {
            key: median(one[key] for one in passes) for key, value in passes[0].items() if not isinstance(value, list)
        }
        for shards, passes in found.items()
    }
    return {"by_shards": by_shards}


def _say(what: str) -> None:
    click.echo(f"bench: {what}", err=True)


if __name__ == "__main__":
    main()
