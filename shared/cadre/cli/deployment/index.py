"""`cadre index`: a gateway's index of runs, and how to rebuild it from their journals; `cadre stats`: the usage of
agents."""

import time
from typing import Any, get_args

import click

from cadre.api.directory import Dimension
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.output import table
from cadre.errors import CommandFailed
from cadre.views.words import number

_LOOK_SECONDS = 0.5


@click.group("index")
def command() -> None:
    """The index of runs of a gateway."""


@command.command("show")
@output_option("text")
def show(output: str) -> None:
    """Show how much is in it, and how far the gateway or a rebuild has come with the journals."""
    with Gateway() as gateway:
        found = gateway.get("/v1/index")
    if output == "json":
        print_json(found)
        return
    click.echo(f"{found['runs']:,} root runs, {found['bytes']:,} bytes")
    if (building := found["building"]) is not None:
        share = building["read"] / building["of"] if building["of"] else 1.0
        click.echo(f"the journals are being read: {share:.0%} of {building['of']:,} messages; lists come then")
    if found["rebuild"] is not None:
        click.echo(_line(found["rebuild"]))


@command.command("rebuild")
def rebuild() -> None:
    """Rebuild it from the journals; the gateway serves meanwhile. Each gateway has its own index."""
    with Gateway() as gateway:
        gateway.post("/v1/index/rebuild", {})
        told = ""
        while True:
            found = gateway.get("/v1/index")["rebuild"]
            if found is None:
                raise CommandFailed("the gateway has started again meanwhile, and its index is what it was")
            if (line := _line(found)) != told:
                click.echo(told := line, err=True)
            if found["state"] == "done":
                return
            if found["state"] == "failed":
                raise CommandFailed(f"the index is what it was: {found['error'] or 'the gateway is stopping'}")
            time.sleep(_LOOK_SECONDS)


def _line(rebuild: dict[str, Any]) -> str:
    if rebuild["state"] != "running":
        return f"rebuild {rebuild['state']} after {rebuild['ended_at'] - rebuild['started_at']:.1f} s"
    share = rebuild["read"] / rebuild["of"] if rebuild["of"] else 0.0
    return f"rebuild running: {share:.0%} of {rebuild['of']:,} entries"


_FILTERS = ("team", "agent", "user", "session", "model", "tool")


def _filters(verb: Any) -> Any:
    for name in reversed(_FILTERS):
        verb = click.option(f"--{name}", metavar="NAME", help=f"Only what is of this {name}.")(verb)
    return verb


@click.command("stats")
@click.option("--since", metavar="WHEN", help="A date or time (UTC), or so long ago: 12h, 7d. [30d]")
@click.option("--until", metavar="WHEN", help="The end of the range. [now]")
@click.option(
    "--by",
    default="agent",
    show_default=True,
    metavar="A,B…",
    help=f"Sums by one or several of {', '.join(get_args(Dimension))}.",
)
@_filters
@output_option("table")
def stats(since: str | None, until: str | None, by: str, output: str, **only: str | None) -> None:
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
        click.echo(f"cadre: {unpriced} model calls have no price and are in no cost: see CADRE_PRICES", err=True)


def _figures(row: dict[str, Any]) -> list[str]:
    counts = ("runs", "failed", "model_calls", "tool_calls", "tool_failures", "input_tokens", "output_tokens")
    return [*(number(row[name]) for name in counts), f"{row['cost']:.4f}".rstrip("0").rstrip(".")]
