"""`cadre run`: gives an agent a task, shows the run on stderr, prints the answer on stdout."""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
import sys
import uuid
from pathlib import Path
from typing import Any

import click
import httpx2

from cadre.cli.terminal.answer import as_text, tell
from cadre.cli.terminal.arguments import key_values, utf8
from cadre.cli.terminal.ask import Asker, asks
from cadre.cli.terminal.run_bounds import bounded, bounds
from cadre.cli.terminal.run_tree import error_text
from cadre.cli.terminal.screen import screen
from cadre.cli.terminal.watch import Detached, watch
from cadre.client.gateway import body, connect, gateway_url, reaching
from cadre.local.exit_codes import Code, Failure, of_run

RUNS = "/v1/runs"

_PASSED_ON = ("https://", "http://", "data:", "blob:")

_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before a run that a gateway did not answer for is asked for again."""

_NAMED = 20
"""Files that a line names."""


@click.command("run")
@click.argument("agent")
@click.argument("task", required=False)
@click.option(
    "--arg", "args", multiple=True, metavar="KEY=VALUE", help="Additional argument; JSON if it parses."
)
@click.option("--image", "images", multiple=True, metavar="FILE|URL", help="Image for the model to see.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the run's workspace, under its own name.",
)
@bounded
@click.option("--session", metavar="NAME", help="Conversation that the run belongs to.")
@click.option("--user", metavar="NAME", help="Person that it works for: whose memories it may share.")
@click.option("--continue", "continues", is_flag=True, help="Go on from the session's last run.")
@click.option(
    "--ask/--no-ask", default=None, help="Decide here on calls that wait for a person [on a terminal: yes]."
)
@click.option("--detach", is_flag=True, help="Print the run's id and leave.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds, then the run is cancelled."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(**options: Any) -> int:
    """Give AGENT a task and follow the run until it ends.

    Without TASK, or with -, the task is read from standard input. The answer goes to stdout, all else to
    stderr. The first Ctrl-C cancels the run, the second leaves it running.
    """
    if options["continues"] and not options["session"]:
        raise click.UsageError("--continue needs --session NAME: the conversation to go on with")
    request = {
        "agent": options["agent"],
        "task": _task(options["task"]),
        "additional_args": key_values("--arg", options["args"]),
        "images": [_image(text) for text in options["images"]],
        "files": _files(options["files"]),
        **bounds(options),
        "session": options["session"],
        "user": options["user"],
        "reset": not options["continues"],
    }
    request = {key: value for key, value in request.items() if value not in (None, [], {})}
    return asyncio.run(launch(request, options))


async def launch(request: dict[str, Any], options: dict[str, Any], path: str = RUNS) -> int:
    """Posts the request for a run to `path` and follows the run; returns the exit code."""
    url, output = gateway_url(), options["output"]
    async with connect(url) as client:
        run = await start(client, url, request, path)
        if options["detach"]:
            click.echo(json.dumps({"id": run}) if output == "json" else run)
            return Code.OK
        shown = screen()
        asker = Asker(client, shown) if asks(options["ask"]) else None
        try:
            result = await watch(client, run, shown, options["timeout"], asker=asker)
        except Detached:
            click.echo(f"cadre: left run {run} to itself: `cadre show {run} --follow` looks again", err=True)
            return Code.DETACHED
        except Failure as failure:
            if failure.code is Code.TIMEOUT and output == "json":
                with reaching(url):
                    _print(body(await client.get(f"{RUNS}/{run}")))
            raise
    return finish(result, output)


async def start(client: httpx2.AsyncClient, url: str, request: dict[str, Any], path: str = RUNS) -> str:
    """Posts the run and returns its id; what was lost or could not be answered is asked again under the same key."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    with reaching(url):
        for tries, pause in enumerate(_PAUSES):
            try:
                return _begun(body(await client.post(path, json=request, headers=headers)))
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                pass
            except httpx2.ConnectError:
                # There is none, unless one was there a moment ago.
                if tries == 0:
                    raise
            except Failure as failure:
                if failure.code is not Code.UNREACHABLE:
                    raise
            await asyncio.sleep(pause)
        return _begun(body(await client.post(path, json=request, headers=headers)))


def _begun(answer: dict[str, Any]) -> str:
    """The id of the run; says what its workspace lacks."""
    later = answer.get("later_files", [])
    if later:
        more = f" and {len(later) - _NAMED} more" if len(later) > _NAMED else ""
        click.echo(
            "cadre: the workspace as of that step is not kept whole; as they are now, or missing:"
            f" {', '.join(later[:_NAMED])}{more}",
            err=True,
        )
    return str(answer["id"])


def finish(result: dict[str, Any], output: str) -> int:
    """Prints how the run ended and returns the exit code that says the same."""
    code = of_run(result)
    if output == "json":
        _print(result)
    elif result.get("output") not in (None, ""):
        tell(as_text(result["output"]))
    if code is not Code.OK:
        reason = error_text(result.get("error")) or "no reason given"
        click.echo(
            f"cadre: run {result['id']} ended as {result['state']}: {' '.join(reason.split())}", err=True
        )
    return code


def _print(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result, ensure_ascii=False))


def _task(argument: str | None) -> str:
    if argument is None and sys.stdin.isatty():
        raise click.UsageError('there is no task: write `cadre run AGENT "TASK"`, or pipe it in')
    try:
        task = sys.stdin.read() if argument in (None, "-") else argument
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the task is not UTF-8 text (at byte {error.start + 1})") from error
    if task is None or not task.strip():
        raise click.UsageError("the task is empty")
    return utf8("the task", task)


def _files(paths: tuple[Path, ...]) -> dict[str, str]:
    """By the names that they will have. Raises UsageError."""
    named: dict[str, Path] = {}
    for path in paths:
        if path.name in named:
            raise click.UsageError(
                f"--file {named[path.name]} and --file {path} would both be {path.name}: rename one of them,"
                " or give it to the run with `cadre files RUN --put FILE PATH`"
            )
        named[path.name] = path
    return {name: _data_url(path) for name, path in named.items()}


def _data_url(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--file {path}: {error.strerror}") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _image(text: str) -> str:
    if text.startswith(_PASSED_ON):
        return text
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise click.UsageError(f"--image {text}: {error.strerror}") from error
    kind = mimetypes.guess_type(text)[0] or ""
    if not kind.startswith("image/"):
        raise click.UsageError(f"--image {text}: its name does not end like that of an image (.png, .jpg, …)")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
