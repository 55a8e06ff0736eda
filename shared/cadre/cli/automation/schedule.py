"""`cadre schedule`: runs that start by the clock; list, show, add, remove, pause, resume, run, next."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from cadre.automation.automation_file import SCHEDULE
from cadre.cli.automation.definitions import Shown, add_file, group_of, print_made, spec_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json, with_options
from cadre.cli.terminal.table import moment, table
from cadre.errors import ExitCode
from cadre.views.words import brief

_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")
_name = click.argument("name")


def _rows(one: Shown) -> Iterator[list[str]]:
    spec = one["spec"]
    yield [
        one["name"],
        one["agent"],
        brief(_when(spec), 40),
        _paused(one) or (moment(one["next"][0]) if one["next"] else "over"),
        str(one["started"]),
        str(one["skipped"]),
        str(one["missed"]),
        one["last_run"] or "-",
    ]


def _paused(one: Shown) -> str:
    """Return that it is paused, with the code of a pause that no person made; "" while it goes on."""
    return f"paused: {one['paused_for']}" if one["paused_for"] else "paused" if one["paused"] else ""


def _when(spec: dict[str, Any]) -> str:
    if "cron" in spec:
        return f"{spec['cron']} ({spec.get('time_zone', 'UTC')})"
    return f"every {spec['every']}" if "every" in spec else "once"


def _details(one: Shown) -> Iterator[str]:
    yield f"schedule  {one['name']}"
    yield f"made      {moment(one['made_at'])}"
    yield f"maker     {one['maker'] or '-'}"
    yield f"state     {_paused(one) or ('active' if one['next'] else 'over')}"
    yield f"ticks     {one['ticks']}: {one['started']} started, {one['skipped']} skipped, {one['missed']} missed"
    if one["queued"]:
        yield f"queued    {one['queued']}"
    yield f"last run  {one['last_run'] or '-'}"
    yield from (f"next      {moment(tick)}" for tick in one["next"])
    yield ""
    yield spec_text(one["spec"])
    if one["outcomes"]:
        yield ""
        rows = [
            [
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(tick["tick"])),
                tick["outcome"],
                tick["run"] or "-",
                brief(": ".join(filter(None, (tick["code"], tick["detail"]))), 200),
            ]
            for tick in one["outcomes"]
        ]
        yield table(["TICK", "OUTCOME", "RUN", ""], rows)


command = group_of(
    SCHEDULE,
    "Schedules: runs that start by the clock.",
    ["NAME", "AGENT", "WHEN", "NEXT", "STARTED", "SKIPPED", "MISSED", "LAST RUN"],
    _rows,
    lambda one: "\n".join(_details(one)),
)


@command.command("next")
@_name
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@output_option("text")
def upcoming(name: str, count: int, output: str) -> None:
    """List the next ticks of schedule NAME."""
    with Gateway() as gateway:
        found = gateway.get(f"{SCHEDULE.path}/{name}", next=count)
    if output == "json":
        print_json(found["next"])
    elif not found["next"]:
        click.echo("no tick is left", err=True)
    else:
        for tick in found["next"]:
            click.echo(moment(tick))


_times = with_options(
    click.option("--every", help="Length of time between ticks: 30s, 10m, 2h, 1d."),
    click.option("--cron", help="Cron expression: five fields, or six with seconds first."),
    click.option("--start", type=click.DateTime(), help="The one tick, or the first that may be."),
    click.option("--end", type=click.DateTime(), help="The last tick that may be."),
    click.option("--count", type=click.IntRange(min=1), help="Ticks in all."),
    click.option("--time-zone", help="IANA name, such as Europe/Berlin.  [default: UTC]"),
    click.option("--overlap", type=click.Choice(["skip", "queue", "allow", "cancel"])),
    click.option("--missed", type=click.Choice(["skip", "one", "all"])),
    click.option("--window", help="Ticks that were missed longer ago are not made up for.  [default: 1d]"),
    click.option("--jitter", help="Each tick comes later by up to this."),
)


# In the place of the verb that takes files alone.
@command.command("add")
@click.argument("file_or_name", metavar="FILE|NAME")
@click.option("--agent", help="Whose run it starts.")
@click.option("--task", help="Its task: a template over tick, count and schedule.")
@_times
@output_option("text")
def add(file_or_name: str, output: str, **given: Any) -> None:
    """Make or replace the schedules in FILE, or schedule NAME of --agent, --task and its times."""
    wanted = {key: _written(value) for key, value in given.items() if value is not None}
    with Gateway() as gateway:
        if not wanted:
            made = add_file(gateway, Path(file_or_name))
        else:
            if not {"agent", "task"} <= wanted.keys():
                raise click.UsageError("a schedule by name needs --agent and --task; or name a file alone")
            made = [gateway.put(f"{SCHEDULE.path}/{file_or_name}", wanted)]
    print_made(made, output)


@command.command("pause")
@_names
def pause(names: tuple[str, ...]) -> None:
    """Pause schedules: their ticks do not come."""
    _each(names, "pause")


@command.command("resume")
@_names
def resume(names: tuple[str, ...]) -> None:
    """Resume schedules; ticks of the pause are not made up for."""
    _each(names, "resume")


@command.command("run")
@_name
@output_option("text")
def run_now(name: str, output: str) -> int:
    """Start a run of schedule NAME now and print its id."""
    with Gateway() as gateway:
        started = gateway.post(f"{SCHEDULE.path}/{name}/run", {})
    print_json(started) if output == "json" else click.echo(started["id"])
    return ExitCode.OK


def _each(names: tuple[str, ...], what: str) -> None:
    with Gateway() as gateway:
        for name in names:
            gateway.post(f"{SCHEDULE.path}/{name}/{what}", {})


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
