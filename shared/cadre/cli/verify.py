"""`cadre verify`: whether anything of a run's journals was changed, removed or moved."""

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
from cadre.delivery.hash_chain import RunLinks, check_chain
from cadre.local.exit_codes import ExitCode


@click.command("verify")
@click.argument("run", required=False)
@click.option("--run-only", is_flag=True, help="Without the runs below it.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A run that `cadre runs export` wrote; no gateway is asked.",
)
@output_option("text")
def command(run: str | None, run_only: bool, file: Path | None, output: str) -> int:
    """Check the hash chains of RUN and of all runs below it: an id, a unique beginning of one, or @last.

    Every entry is sealed by a hash over itself and the entry before it. Ends with 0 when all of them hold, else with 1.
    """
    if (run is None) == (file is None):
        raise click.UsageError("name a RUN, or a --file that `cadre runs export` wrote")
    found = _verify_file(file, run_only) if file is not None else _verify_on_gateway(run or "", run_only)
    if output == "json":
        print_json(found)
    else:
        print_text("\n".join(_report(found)))
    return ExitCode.FAILED if found["broken"] else ExitCode.OK


def _verify_on_gateway(run: str, run_only: bool) -> dict[str, Any]:
    with Gateway() as gateway:
        return gateway.get(f"/v1/runs/{gateway.run_id(run)}/verify", run_only="true" if run_only else None)


def _verify_file(file: Path, run_only: bool) -> dict[str, Any]:
    """Checks an exported run; the result has the form of the gateway's answer."""
    tree = ""
    journals: dict[str, list[bytes]] = {}
    for tree, _, data in exported_entries(file):
        run = msgspec.json.decode(data, type=RunLinks).run
        if not run_only or run == tree:
            journals.setdefault(run, []).append(data)
    chains = [check_chain(journal) for journal in journals.values()]
    broken = [msgspec.to_builtins(link) for chain in chains for link in chain.broken]
    counts = {"entries": sum(one.entries for one in chains), "sealed": sum(one.sealed for one in chains)}
    return {"id": tree, "runs": len(chains), **counts, "broken": broken}


def _report(found: dict[str, Any]) -> Iterator[str]:
    for link in found["broken"]:
        yield f"{link['run']} entry {link['n']}: {link['reason']}"
    verdict = f"{len(found['broken'])} broken" if found["broken"] else "all of them hold"
    yield f"{found['runs']} run(s), {found['entries']} entries, {found['sealed']} with a hash: {verdict}"
