"""`cadre schedule|trigger|notice|budget`: list, show, add, remove definitions; pause and run schedules."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from cadre.automation.automation_file import (
    BUDGET,
    NOTICE,
    SCHEDULE,
    TRIGGER,
    AnySpec,
    Definition,
    path_of,
    read_automations,
)
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found, print_json, with_options
from cadre.cli.terminal.output import moment, table
from cadre.errors import ExitCode
from cadre.views.words import brief, number

Shown = dict[str, Any]
"""A definition as the gateway shows it."""


def add_file(gateway: Gateway, file: Path) -> list[Shown]:
    """Make or replace everything in the file; returns what the gateway has then. Raises SpecError, CommandFailed."""
    return [gateway.put(path_of(spec), msgspec.to_builtins(spec)) for spec in read_automations(file)]


def print_made(made: Sequence[Shown], output: str) -> None:
    """Print what was made or replaced: of a schedule also its next tick."""
    if output == "json":
        print_json(made)
    else:
        for one in made:
            click.echo(one["name"] + (f", next {moment(one['next'][0])}" if one.get("next") else ""))


def spec_text(spec: dict[str, Any]) -> str:
    """Return the keys of a specification as YAML."""
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True).rstrip()


def group_of(
    definition: Definition[AnySpec],
    about: str,
    headers: Sequence[str],
    rows: Callable[[Shown], Iterable[list[str]]],
    details: Callable[[Shown], str] = spec_text,
) -> click.Group:
    """Return the command group of a kind of definition; `rows` are the lines of one in the list."""
    name, plural, path = definition.name, definition.plural, definition.path
    group = click.Group(name, help=about)

    @group.command("list", help=f"List all {plural}.")
    @output_option("table")
    def list_all(output: str) -> None:
        with Gateway() as gateway:
            found = gateway.get(path)[plural]
        nothing = f"no {plural}; make one with `cadre {name} add FILE`"
        print_found(output, found, lambda: table(headers, [row for one in found for row in rows(one)]), nothing)

    @group.command("show", help=f"Show {name} NAME.")
    @click.argument("name")
    @output_option("text")
    def show(name: str, output: str) -> None:
        with Gateway() as gateway:
            found = gateway.get(f"{path}/{name}")
        print_found(output, found, lambda: details(found))

    @group.command("add", help=f"Make or replace the {plural} in FILE.")
    @click.argument("file", type=click.Path(path_type=Path))
    @output_option("text")
    def add(file: Path, output: str) -> None:
        with Gateway() as gateway:
            print_made(add_file(gateway, file), output)

    @group.command("remove", help=f"Remove {plural}; {definition.removed}.")
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    def remove(names: tuple[str, ...]) -> None:
        with Gateway() as gateway:
            for name in names:
                gateway.delete(f"{path}/{name}")

    return group


def _state_and_maker(one: Shown) -> list[str]:
    """Return the cells that say whether a trigger or notice works, and who wrote it last."""
    code, active = one.get("paused_for", ""), "paused" if one.get("paused") else "active"
    return [f"paused: {code}" if code else active, one.get("maker") or "-"]


def _trigger(one: Shown) -> Iterable[list[str]]:
    webhook = "yes" if "webhook" in one else "-"
    yield [one["name"], one["agent"], one.get("subject", "-"), webhook, *_state_and_maker(one)]


def _notice(one: Shown) -> Iterable[list[str]]:
    yield [one["name"], one["url"], ", ".join(one.get("events", ["all"])), *_state_and_maker(one)]


def _budget(one: Shown) -> Iterable[list[str]]:
    """Yield a line for each account of the budget."""
    spec = one["spec"]
    scope = [f"{key} {spec[key]}" for key in ("team", "agent") if key in spec]
    for use in one["uses"] or [{"user": "", "tokens": 0, "cost": 0.0, "share": 0.0}]:
        user = use["user"] or spec.get("user")
        yield [
            one["name"],
            ", ".join([*scope, *([f"user {user}"] if user else [])]) or "all",
            spec["window"],
            f"{use['share']:.0%}",
            f"{number(use['tokens'])} of {number(spec['tokens'])}" if "tokens" in spec else "-",
            f"{use['cost']:.4g} of {spec['cost']:g}" if "cost" in spec else "-",
            moment(one["until"]),
        ]


trigger = group_of(
    TRIGGER,
    "Triggers: runs that messages on the bus and signed webhooks start.",
    ["NAME", "AGENT", "SUBJECT", "WEBHOOK", "STATE", "MAKER"],
    _trigger,
)
notice = group_of(
    NOTICE,
    "Notices: web addresses that receive events of runs.",
    ["NAME", "URL", "EVENTS", "STATE", "MAKER"],
    _notice,
)
budget = group_of(
    BUDGET,
    "Standing budgets: what users, agents and teams may use in an hour, day, week or month.",
    ["NAME", "OF", "WINDOW", "USED", "TOKENS", "COST", "WHOLE AGAIN"],
    _budget,
)


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


schedule = group_of(
    SCHEDULE,
    "Schedules: runs that start by the clock.",
    ["NAME", "AGENT", "WHEN", "NEXT", "STARTED", "SKIPPED", "MISSED", "LAST RUN"],
    _rows,
    lambda one: "\n".join(_details(one)),
)


@schedule.command("next")
@_name
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@output_option("text")
def upcoming(name: str, count: int, output: str) -> None:
    """List the next ticks of schedule NAME."""
    with Gateway() as gateway:
        found = gateway.get(f"{SCHEDULE.path}/{name}", next=count)
    print_found(output, found["next"], lambda: map(moment, found["next"]), "no tick is left")


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
@schedule.command("add")
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


@schedule.command("pause")
@_names
def pause(names: tuple[str, ...]) -> None:
    """Pause schedules: their ticks do not come."""
    _each(names, "pause")


@schedule.command("resume")
@_names
def resume(names: tuple[str, ...]) -> None:
    """Resume schedules; ticks of the pause are not made up for."""
    _each(names, "resume")


@schedule.command("run")
@_name
@output_option("text")
def run_now(name: str, output: str) -> int:
    """Start a run of schedule NAME now and print its id."""
    with Gateway() as gateway:
        started = gateway.post(f"{SCHEDULE.path}/{name}/run", {})
    print_found(output, started, lambda: started["id"])
    return ExitCode.OK


def _each(names: tuple[str, ...], what: str) -> None:
    with Gateway() as gateway:
        for name in names:
            gateway.post(f"{SCHEDULE.path}/{name}/{what}", {})


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
