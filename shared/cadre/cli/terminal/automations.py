"""What the verbs for schedules, triggers, notices and budgets share: files, times, specifications, common verbs."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from cadre.automation.automation_file import path_of, read_automations
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json


def add_file(gateway: Gateway, file: Path) -> list[dict[str, Any]]:
    """Makes or replaces everything in the file; returns what the gateway has then. Raises SpecError, CommandFailed."""
    return [gateway.put(path_of(spec), msgspec.to_builtins(spec)) for spec in read_automations(file)]


def moment(at: float) -> str:
    """A time in this machine's zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")


def state_and_maker(one: dict[str, Any]) -> list[str]:
    """The cells that say whether a trigger or notice works, and who wrote it last."""
    code = one.get("paused_for", "")
    return [f"paused: {code}" if code else "active", one.get("maker") or "-"]


def spec_text(spec: dict[str, Any]) -> str:
    """The keys of a specification as YAML."""
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True).rstrip()


def add_definition_verbs(group: click.Group, kind: str, removed: str) -> None:
    """Adds `show`, `add` and `remove` to the verbs of a kind such as `trigger`; `removed` says what a removal means."""
    path = f"/v1/{kind}s"

    @group.command("show", help=f"Show {kind} NAME.")
    @click.argument("name")
    @output_option("text")
    def show(name: str, output: str) -> None:
        with Gateway() as gateway:
            found = gateway.get(f"{path}/{name}")
        print_json(found) if output == "json" else print_text(spec_text(found))

    @group.command("add", help=f"Make or replace the {kind}s in FILE.")
    @click.argument("file", type=click.Path(path_type=Path))
    @output_option("text")
    def add(file: Path, output: str) -> None:
        with Gateway() as gateway:
            made = add_file(gateway, file)
        if output == "json":
            print_json(made)
        else:
            for one in made:
                click.echo(one["name"])

    @group.command("remove", help=f"Remove {kind}s; {removed}.")
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    def remove(names: tuple[str, ...]) -> None:
        with Gateway() as gateway:
            for name in names:
                gateway.delete(f"{path}/{name}")
