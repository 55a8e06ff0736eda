"""`cadre schedule|trigger|notice|budget`: list, show, add, remove definitions."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from cadre.automation.automation_file import (
    BUDGET,
    NOTICE,
    TRIGGER,
    AnySpec,
    Definition,
    path_of,
    read_automations,
)
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import moment, table
from cadre.views.words import number

Shown = dict[str, Any]
"""A definition as the gateway shows it."""


def add_file(gateway: Gateway, file: Path) -> list[Shown]:
    """Makes or replaces everything in the file; returns what the gateway has then. Raises SpecError, CommandFailed."""
    return [gateway.put(path_of(spec), msgspec.to_builtins(spec)) for spec in read_automations(file)]


def print_made(made: Sequence[Shown], output: str) -> None:
    """Print what was made or replaced: of a schedule also its next tick."""
    if output == "json":
        print_json(made)
    else:
        for one in made:
            click.echo(one["name"] + (f", next {moment(one['next'][0])}" if one.get("next") else ""))


def spec_text(spec: dict[str, Any]) -> str:
    """The keys of a specification as YAML."""
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True).rstrip()


def group_of(
    definition: Definition[AnySpec],
    about: str,
    headers: Sequence[str],
    rows: Callable[[Shown], Iterable[list[str]]],
    details: Callable[[Shown], str] = spec_text,
) -> click.Group:
    """The command group of a kind of definition; `rows` are the lines of one in the list."""
    name, plural, path = definition.name, definition.plural, definition.path
    group = click.Group(name, help=about)

    @group.command("list", help=f"List all {plural}.")
    @output_option("table")
    def list_all(output: str) -> None:
        with Gateway() as gateway:
            found = gateway.get(path)[plural]
        if output == "json":
            print_json(found)
        elif not found:
            click.echo(f"no {plural}; make one with `cadre {name} add FILE`", err=True)
        else:
            click.echo(table(headers, [row for one in found for row in rows(one)]))

    @group.command("show", help=f"Show {name} NAME.")
    @click.argument("name")
    @output_option("text")
    def show(name: str, output: str) -> None:
        with Gateway() as gateway:
            found = gateway.get(f"{path}/{name}")
        print_json(found) if output == "json" else print_text(details(found))

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
    """The cells that say whether a trigger or notice works, and who wrote it last."""
    code = one.get("paused_for", "")
    return [f"paused: {code}" if code else "active", one.get("maker") or "-"]


def _trigger(one: Shown) -> Iterable[list[str]]:
    webhook = "yes" if "webhook" in one else "-"
    yield [one["name"], one["agent"], one.get("subject", "-"), webhook, *_state_and_maker(one)]


def _notice(one: Shown) -> Iterable[list[str]]:
    yield [one["name"], one["url"], ", ".join(one.get("events", ["all"])), *_state_and_maker(one)]


def _budget(one: Shown) -> Iterable[list[str]]:
    """A line for each account of the budget."""
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
