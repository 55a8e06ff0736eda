"""`cadre index`: what a gateway knows of runs beside their journals, and how to make it anew."""

import time
from typing import Any

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.errors import CommandFailed

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
        click.echo(
            f"the journals are being read: {share:.0%} of {building['of']:,} messages; lists come then"
        )
    if found["rebuild"] is not None:
        click.echo(_line(found["rebuild"]))


@command.command("rebuild")
def rebuild() -> None:
    """Make it anew from the journals; the gateway serves meanwhile. Each gateway has an index of its own."""
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
                raise CommandFailed(
                    f"the index is what it was: {found['error'] or 'the gateway is stopping'}"
                )
            time.sleep(_LOOK_SECONDS)


def _line(rebuild: dict[str, Any]) -> str:
    if rebuild["state"] != "running":
        return f"rebuild {rebuild['state']} after {rebuild['ended_at'] - rebuild['started_at']:.1f} s"
    share = rebuild["read"] / rebuild["of"] if rebuild["of"] else 0.0
    return f"rebuild running: {share:.0%} of {rebuild['of']:,} entries"
