"""`cadre budget`: what users, agents and teams may use in a time; list, show, add, remove."""

from typing import Any

import click

from cadre.cli.terminal.automations import add_definition_verbs, moment
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import number, table


@click.group("budget")
def command() -> None:
    """Standing budgets: what users, agents and teams may use in an hour, day, week or month."""


@command.command("list")
@output_option("table")
def list_budgets(output: str) -> None:
    """List all budgets, with what is used of them."""
    with Gateway() as gateway:
        found = gateway.get("/v1/budgets")["budgets"]
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("no budgets; make one with `cadre budget add FILE`", err=True)
    else:
        rows = [row for one in found for row in _rows(one)]
        click.echo(table(["NAME", "OF", "WINDOW", "USED", "TOKENS", "COST", "WHOLE AGAIN"], rows))


def _rows(budget: dict[str, Any]) -> list[list[str]]:
    """A line for each account of the budget."""
    spec = budget["spec"]
    scope = [f"{key} {spec[key]}" for key in ("team", "agent") if key in spec]
    uses = budget["uses"] or [{"user": spec.get("user", ""), "tokens": 0, "cost": 0.0, "share": 0.0}]
    return [
        [
            budget["name"],
            ", ".join([*scope, *([f"user {user}"] if (user := use["user"] or spec.get("user")) else [])])
            or "all",
            spec["window"],
            f"{use['share']:.0%}",
            f"{number(use['tokens'])} of {number(spec['tokens'])}" if "tokens" in spec else "-",
            f"{use['cost']:.4g} of {spec['cost']:g}" if "cost" in spec else "-",
            moment(budget["until"]),
        ]
        for use in uses
    ]


add_definition_verbs(command, "budget", "what was used is counted anew should it be made again")
