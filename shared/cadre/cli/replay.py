"""`cadre replay`: a run's journal decided anew, and what differs from what was journaled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.exported_run import exported_entries
from cadre.cli.terminal.options import output_option, print_json
from cadre.client.gateway import Gateway
from cadre.delivery.codec import decode
from cadre.errors import UnreadableMessage
from cadre.journal.entry import Entry
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.loop.redecide import Journaled, redecide


@click.command("replay")
@click.argument("run", required=False)
@click.option("--run-only", is_flag=True, help="Without the runs below it.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A run that `cadre runs export` wrote, decided by the Cadre of this command; no gateway is asked.",
)
@output_option("text")
def command(run: str | None, run_only: bool, file: Path | None, output: str) -> int:
    """Decide the journals of RUN and of all runs below it anew: an id, a unique beginning of one, or @last.

    Nothing is sent and no run is changed. Ends with 0 when every decision is the one that was journaled, else
    with 1.
    """
    if (run is None) == (file is None):
        raise click.UsageError("name a RUN, or a --file that `cadre runs export` wrote")
    found = _replay_file(file, run_only) if file is not None else _replay_on_gateway(run or "", run_only)
    if output == "json":
        print_json(found)
    else:
        print_text("\n".join(_report(found)))
    return ExitCode.FAILED if found["divergences"] else ExitCode.OK


def _replay_on_gateway(run: str, run_only: bool) -> dict[str, Any]:
    with Gateway() as gateway:
        return gateway.get(f"/v1/runs/{gateway.run_id(run)}/replay", run_only="true" if run_only else None)


def _replay_file(file: Path, run_only: bool) -> dict[str, Any]:
    """Decides an exported run anew; the result has the form of the gateway's answer."""
    tree = ""
    journals: dict[str, list[Journaled]] = {}
    for tree, seq, data in exported_entries(file):
        try:
            entry: Entry = decode(data, Entry)
        except UnreadableMessage as error:
            raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
        if not run_only or entry.run == tree:
            journals.setdefault(entry.run, []).append(Journaled(seq, entry))
    found: dict[str, Any] = msgspec.to_builtins(redecide(journals.values()))
    return {"id": tree, **found, "omitted": 0}


def _report(found: dict[str, Any]) -> Iterator[str]:
    for divergence in found["divergences"]:
        yield f"{divergence['run']} entry {divergence['n']}: {divergence['about']}"
        yield from (f"    {line}" for line in divergence["lines"])
    for unknown in found["undecided"]:
        yield f"{unknown['run']} entry {unknown['n']}: not decided anew: {unknown['reason']}"
    if found["omitted"]:
        yield f"… and {found['omitted']} more divergences"
    count = len(found["divergences"]) + found["omitted"]
    verdict = _many(count, "divergence") if count else "no divergence"
    yield (
        f"{_many(found['runs'], 'run')}, {_many(found['entries'], 'entry', 'entries')}:"
        f" {found['decided']} decided anew, {_many(found['snapshots'], 'snapshot')} compared: {verdict}"
    )


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
