"""Starts a run, follows it, and says how it ended."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import click
import httpx2

from cadre.cli.terminal.answer import as_text, print_text
from cadre.cli.terminal.ask import Asker, should_ask
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.outcome import exit_code
from cadre.cli.terminal.run_tree import error_text
from cadre.cli.terminal.screen import screen
from cadre.cli.terminal.watch import Detached, watch
from cadre.client.gateway import body, connect, connection_errors, gateway_url, request_json
from cadre.local.exit_codes import CommandFailed, ExitCode

RUNS = "/v1/runs"

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a run that a gateway did not answer for is asked for again."""

_MAX_NAMED_FILES = 20
"""Files that one line names."""


async def launch(request: dict[str, Any], options: dict[str, Any], path: str = RUNS) -> int:
    """Posts the request for a run to `path` and follows the run; returns the exit code."""
    url, output = gateway_url(), options["output"]
    async with connect(url) as client:
        run = await post_run(client, url, request, path)
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
                print_json(await request_json(client, "GET", f"{RUNS}/{run}"))
            raise
    return print_outcome(result, output)


async def post_run(client: httpx2.AsyncClient, url: str, request: dict[str, Any], path: str = RUNS) -> str:
    """Posts the run and returns its id.

    A request that was lost or not answered is repeated with the same idempotency key.
    """
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    with connection_errors(url):
        for tries, pause in enumerate(_PAUSES_SECONDS):
            try:
                return accepted_run(body(await client.post(path, json=request, headers=headers)))
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                pass
            except httpx2.ConnectError:
                # There is none, unless one was there a moment ago.
                if tries == 0:
                    raise
            except CommandFailed as failure:
                if failure.code is not ExitCode.UNREACHABLE:
                    raise
            await asyncio.sleep(pause)
        return accepted_run(body(await client.post(path, json=request, headers=headers)))


def accepted_run(answer: dict[str, Any]) -> str:
    """The id in the answer to a posted run; prints what the run's workspace lacks."""
    later = answer.get("later_files", [])
    if later:
        more = f" and {len(later) - _MAX_NAMED_FILES} more" if len(later) > _MAX_NAMED_FILES else ""
        click.echo(
            "cadre: the workspace as of that step is not kept whole; as they are now, or missing:"
            f" {', '.join(later[:_MAX_NAMED_FILES])}{more}",
            err=True,
        )
    return str(answer["id"])


def print_outcome(result: dict[str, Any], output: str) -> int:
    """Prints how the run ended and returns the exit code that says the same."""
    code = exit_code(result)
    if output == "json":
        print_json(result)
    elif result.get("output") not in (None, ""):
        print_text(as_text(result["output"]))
    if code is not ExitCode.OK:
        reason = error_text(result.get("error")) or "no reason given"
        click.echo(
            f"cadre: run {result['id']} ended as {result['state']}: {' '.join(reason.split())}", err=True
        )
    return code
