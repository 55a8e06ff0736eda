"""`cadre runs rm|export|import`: what is done with a run and all runs below it as a whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from cadre.cli.files import written
from cadre.client.gateway import Gateway
from cadre.local.exit_codes import Code, Failure

_output = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)

STDOUT = "-"


@click.command("rm")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--force", is_flag=True, help="Cancel a run that has not ended, wait for its end, then erase it."
)
@_output
def erase(runs: tuple[str, ...], force: bool, output: str) -> None:
    """Erase each RUN with all runs below it, everywhere and for good: an id, a unique beginning of one, or @last."""
    failure: Failure | None = None
    with Gateway() as gateway:
        for run in _each_once(gateway, runs):
            if isinstance(run, Failure):
                failure = _told(failure, run)
                continue
            try:
                gone = gateway.delete(f"/v1/runs/{run}", force="true" if force else None)
            except Failure as error:
                failure = _told(failure, error)
            else:
                click.echo(json.dumps(gone) if output == "json" else f"{gone['id']} erased ({_runs(gone)})")
    if failure is not None:
        raise failure


@click.command("export")
@click.argument("run")
@click.option("-o", "--output", "target", metavar="FILE", help="Where to; `-` is stdout [RUN.cadre].")
def export_run(run: str, target: str | None) -> None:
    """Write RUN, which has ended, with all runs below it and their blobs to one file."""
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        path = f"/v1/runs/{identity}/export"
        if target == STDOUT:
            gateway.download(path, sys.stdout.buffer)
            return
        file = Path(target or f"{identity}.cadre")
        with written(file) as stream:
            gateway.download(path, stream)
    click.echo(f"{identity} exported to {file} ({file.stat().st_size} bytes)")


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_output
def import_run(file: Path, output: str) -> None:
    """Bring the run in FILE, which `cadre runs export` wrote, to this deployment."""
    try:
        stream = file.open("rb")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", Code.USAGE) from error
    with stream, Gateway() as gateway:
        try:
            arrived = gateway.upload("/v1/runs/import", stream)
        except Failure as failure:
            raise Failure(f"{file}: {failure.message}", failure.code) from failure
    if output == "json":
        click.echo(json.dumps(arrived))
    else:
        click.echo(f"{arrived['id']} imported ({_runs(arrived)}, {arrived['entries']} entries)")


def _each_once(gateway: Gateway, references: tuple[str, ...]) -> list[str | Failure]:
    """The ids, found before the first is erased: @last is the last of all that are there now."""
    found: list[str | Failure] = []
    for reference in references:
        try:
            run: str | Failure = gateway.run_id(reference)
        except Failure as failure:
            if failure.code is Code.UNREACHABLE:
                raise
            run = failure
        if run not in found:
            found.append(run)
    return found


def _told(before: Failure | None, failure: Failure) -> Failure:
    """The failure that ends the command is its last line; those before it are told at once."""
    if before is not None:
        click.echo(f"cadre: {before.message}", err=True)
    return failure


def _runs(told: dict[str, Any]) -> str:
    return "1 run" if told["runs"] == 1 else f"{told['runs']} runs"
