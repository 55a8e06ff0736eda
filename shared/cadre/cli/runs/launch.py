"""Starts a run, follows it, and says how it ended."""

from typing import Any

import click

from cadre.cli.run_view.screen import screen
from cadre.cli.runs.ask import Asker, should_ask
from cadre.cli.runs.watch import Detached, watch
from cadre.cli.terminal.answer import as_text, print_text
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.outcome import exit_code
from cadre.client.transport import RUNS
from cadre.errors import CommandFailed, ExitCode
from cadre.views.words import error_text

_MAX_NAMED_FILES = 20
"""Files that one line names."""


async def launch(request: dict[str, Any], options: dict[str, Any], path: str = RUNS) -> int:
    """Posts the request for a run to `path` and follows the run; returns the exit code."""
    # The client's weight is not the help's.
    from cadre.client.client import AsyncClient
    from cadre.client.run_handle import AsyncRunHandle

    output = options["output"]
    async with AsyncClient() as client:
        started = await AsyncRunHandle.post(client, request, path)
        run = started.id
        note_later_files(started.later_files)
        if options["detach"]:
            print_json({"id": run}) if output == "json" else click.echo(run)
            return ExitCode.OK
        shown = screen()
        asker = Asker(client, shown) if should_ask(options["ask"]) else None
        try:
            result = await watch(client, run, shown, options["timeout"], asker=asker)
        except Detached:
            click.echo(f"cadre: left run {run} to itself: `cadre show {run} --follow` looks again", err=True)
            return ExitCode.DETACHED
        except CommandFailed as failure:
            if failure.code is ExitCode.TIMEOUT and output == "json":
                print_json(await client.request("GET", f"{RUNS}/{run}"))
            raise
    return print_outcome(result, output)


def note_later_files(later: list[str]) -> None:
    """Says what a fork's workspace lacks."""
    if later:
        more = f" and {len(later) - _MAX_NAMED_FILES} more" if len(later) > _MAX_NAMED_FILES else ""
        print_text(
            "cadre: the workspace as of that step is not kept whole; as they are now, or missing:"
            f" {', '.join(later[:_MAX_NAMED_FILES])}{more}",
            err=True,
        )


def print_outcome(result: dict[str, Any], output: str) -> int:
    """Prints how the run ended and returns the exit code that says the same."""
    code = exit_code(result)
    if output == "json":
        print_json(result)
    elif result.get("output") not in (None, ""):
        print_text(as_text(result["output"]))
    if code is not ExitCode.OK:
        reason = error_text(result.get("error")) or "no reason given"
        print_text(
            f"cadre: run {result['id']} ended as {result['state']}: {' '.join(reason.split())}", err=True
        )
    return code
