"""`cadre audit`: what was done at the gateway, and by whom."""

from typing import Any

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import moment, table


@click.command("audit")
@click.option("--since", metavar="WHEN", help="A date or time (UTC), or so long ago: 12h, 7d.")
@click.option("--until", metavar="WHEN", help="Likewise.")
@click.option("--who", metavar="NAME", help="Only what this person or key did.")
@click.option("--action", metavar="NAME", help="Only this, such as run.cancel, or run for all of runs.")
@click.option("--target", metavar="ID", help="Only what was done to this run, call, key or memory.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@output_option("table")
def command(limit: int, output: str, **wanted: str | None) -> None:
    """Show decisions, cancels, erasures, edits, changes of keys and the like, newest first."""
    with Gateway() as gateway:
        found = gateway.get("/v1/audit", limit=limit, **wanted)["entries"]
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("nothing", err=True)
    else:
        headers = ["AT", "WHO", "ACTION", "TARGET", "STATUS", "FROM", "MORE"]
        click.echo(table(headers, [_row(entry) for entry in found]))


def _row(entry: dict[str, Any]) -> list[str]:
    more = [f"{key}={value}" for key, value in entry.get("detail", {}).items() if value]
    about = (entry["action"], entry.get("target", ""), str(entry["status"]), entry.get("source", ""))
    return [moment(entry["at"]), entry["who"] or "?", *(text or "-" for text in about), " ".join(more)]
