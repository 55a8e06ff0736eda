"""`cadre stats`: what agents have used, summed up from the journals."""

from typing import Any, get_args

import click

from cadre.api.statistics import Dimension
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import table
from cadre.views.words import number

_FILTERS = ("team", "agent", "user", "session", "model", "tool")


def _filters(command: Any) -> Any:
    for name in reversed(_FILTERS):
        command = click.option(f"--{name}", metavar="NAME", help=f"Only what is of this {name}.")(command)
    return command


@click.command("stats")
@click.option("--since", metavar="WHEN", help="A date or time (UTC), or so long ago: 12h, 7d. [30d]")
@click.option("--until", metavar="WHEN", help="Likewise. [now]")
@click.option(
    "--by",
    default="agent",
    show_default=True,
    metavar="A,B…",
    help=f"Sums by one or several of {', '.join(get_args(Dimension))}.",
)
@_filters
@output_option("table")
def command(since: str | None, until: str | None, by: str, output: str, **only: str | None) -> None:
    """Show runs, calls, tokens and cost; those of removed runs too."""
    with Gateway() as gateway:
        found = gateway.get("/v1/stats", since=since, until=until, by=by, **only)
    if output == "json":
        print_json(found)
        return
    dimensions = found["by"]
    headers = ["RUNS", "FAILED", "MODEL CALLS", "TOOL CALLS", "TOOL ERRORS", "TOKENS IN", "OUT", "COST"]
    rows = [[*(row[name] or "-" for name in dimensions), *_figures(row)] for row in found["rows"]]
    if len(rows) != 1:
        rows.append([*(["total", *[""] * len(dimensions)][: len(dimensions)]), *_figures(found["total"])])
    click.echo(table([*(name.upper() for name in dimensions), *headers], rows))
    if unpriced := found["total"]["unpriced_calls"]:
        click.echo(
            f"cadre: {unpriced} model calls have no price and are in no cost: see CADRE_PRICES", err=True
        )


def _figures(row: dict[str, Any]) -> list[str]:
    counts = ("runs", "failed", "model_calls", "tool_calls", "tool_failures", "input_tokens", "output_tokens")
    return [*(number(row[name]) for name in counts), f"{row['cost']:.4f}".rstrip("0").rstrip(".")]
