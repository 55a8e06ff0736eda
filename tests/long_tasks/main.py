"""`python -m long_tasks.main`: exit status 0 only if each long task gave one result and took effect once."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click

from harness.patience import eventually
from harness.stack import Gateway, Stack
from long_tasks.ways import A2a, McpTasks, Way

TEAM = Path(__file__).parent / "team"
KILLS = 3


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.1), default=60.0, show_default=True)
def main(minutes: float) -> None:
    """Give a task of so many minutes by A2A and one by MCP Tasks, and kill -9 the gateway three times on the way.

    Behind each kill the clients send their message once more, to another gateway, and ask for the task there.
    """
    seconds = 60 * minutes
    with tempfile.TemporaryDirectory(prefix="cadre-long-") as folder, Stack(Path(folder)) as stack:
        stack.environment["CADRE_DOORS"] = "a2a,mcp"
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "digger.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        other = stack.add("other", "cadre_gateway", start=False)
        gateway = stack.open_gateway(1)
        book = Path(folder) / "book"
        ways: list[Way] = [kind(f"dig {seconds:g} s into {book} for {kind.name}") for kind in (A2a, McpTasks)]
        tasks = [way.begin(gateway.service.url) for way in ways]
        began = time.monotonic()
        for kill in range(1, KILLS + 1):
            _sleep_until(began + seconds * kill / (KILLS + 1))
            gateway.service.kill()
            again = [way.begin(other.url) for way in ways]
            states = [way.state(other.url, task) for way, task in zip(ways, tasks, strict=True)]
            click.echo(f"{time.monotonic() - began:6.0f} s  gateway killed; elsewhere {states}", err=True)
            assert again == tasks, f"a message sent again has begun another task: {tasks} {again}"
            gateway.service.start()
        _sleep_until(began + seconds)
        for way, task in zip(ways, tasks, strict=True):
            _await_end(way, gateway, task)
        took = time.monotonic() - began
        urls = (gateway.service.url, other.url)
        found = {way.name: [way.result(url, task) for url in urls] for way, task in zip(ways, tasks, strict=True)}
        runs = gateway.request("GET", "/v1/runs").json()["runs"]
        effects = book.read_text().splitlines()
        asked = {way.name: way.asked for way in ways}
    sound = len(runs) == len(effects) == len(set(effects)) == len(ways)
    sound = sound and all(told == [f"dug for {seconds:g} s"] * 2 for told in found.values())
    report = {"minutes": minutes, "seconds": round(took, 1), "kills": KILLS, "runs": len(runs)}
    click.echo(json.dumps({**report, "effects": len(effects), "results": found, "requests": asked}, indent=1))
    sys.exit(0 if sound else 1)


def _sleep_until(moment: float) -> None:
    """The task is to be that long under way: there is nothing else to wait for."""
    time.sleep(max(0.0, moment - time.monotonic()))


def _await_end(way: Way, gateway: Gateway, task: str) -> None:
    def is_over() -> bool:
        return way.state(gateway.service.url, task) == "completed"

    eventually(is_over, what=f"the task of {way.name} is over")


if __name__ == "__main__":
    main()
