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

from cadre.cli.answer import as_text, tell
from cadre.cli.exits import Code, of_state
from cadre.cli.gateway import body, gateway_url, reaching
from cadre.cli.screen import screen
from cadre.cli.tree import error_text
from cadre.cli.watch import Detached, connect, watch

_PASSED_ON = ("https://", "http://", "data:", "blob:")


@click.command("run")
@click.argument("agent")
@click.argument("task", required=False)
@click.option(
    "--arg", "args", multiple=True, metavar="KEY=VALUE", help="Additional argument; JSON if it parses."
)
@click.option("--image", "images", multiple=True, metavar="FILE|URL", help="Image for the model to see.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps before the agent must answer.")
@click.option("--session", metavar="NAME", help="Conversation that the run belongs to.")
@click.option("--continue", "continues", is_flag=True, help="Go on from the session's last run.")
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
        "additional_args": _arguments(options["args"]),
        "images": [_image(text) for text in options["images"]],
        "max_steps": options["max_steps"],
        "session": options["session"],
        "reset": not options["continues"],
    }
    request = {key: value for key, value in request.items() if value not in (None, [], {})}
    return asyncio.run(_run(request, options["detach"], options["timeout"], options["output"]))


async def _run(request: dict[str, Any], detach: bool, timeout: float | None, output: str) -> int:
    url = gateway_url()
    async with connect(url) as client:
        run = await start(client, url, request)
        if detach:
            click.echo(json.dumps({"id": run}) if output == "json" else run)
            return Code.OK
        try:
            result = await watch(client, run, screen(), timeout)
        except Detached:
            click.echo(f"cadre: left run {run} to itself: `cadre show {run} --follow` looks again", err=True)
            return Code.DETACHED
    return finish(result, output)


async def start(client: httpx2.AsyncClient, url: str, request: dict[str, Any]) -> str:
    """Posts the run and returns its id; a lost answer is asked for again under the same key."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    with reaching(url):
        for _ in range(2):
            try:
                return str(body(await client.post("/v1/runs", json=request, headers=headers))["id"])
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                continue
        return str(body(await client.post("/v1/runs", json=request, headers=headers))["id"])


def finish(result: dict[str, Any], output: str) -> int:
    """Prints how the run ended and returns the exit code that says the same."""
    code = of_state(result["state"])
    if output == "json":
        click.echo(json.dumps(result, ensure_ascii=False))
    elif result.get("output") not in (None, ""):
        tell(as_text(result["output"]))
    if code is not Code.OK:
        reason = error_text(result.get("error")) or "no reason given"
        click.echo(
            f"cadre: run {result['id']} ended as {result['state']}: {' '.join(reason.split())}", err=True
        )
    return code


def _task(argument: str | None) -> str:
    if argument is None and sys.stdin.isatty():
        raise click.UsageError('there is no task: write `cadre run AGENT "TASK"`, or pipe it in')
    task = sys.stdin.read() if argument in (None, "-") else argument
    if task is None or not task.strip():
        raise click.UsageError("the task is empty")
    return _utf8("the task", task)


def _utf8(what: str, text: str) -> str:
    """Python reads bytes that are no UTF-8 as surrogates, which JSON cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text (at character {error.start + 1})") from error
    return text


def _argument(text: str) -> tuple[str, Any]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise click.UsageError(f"--arg {text!r}: write KEY=VALUE")
    _utf8(f"--arg {key!a}", text)
    try:
        return key, json.loads(value, parse_constant=_no_constant)
    except ValueError:
        return key, value


def _no_constant(name: str) -> Any:
    """NaN and its like are Python's, not JSON's."""
    raise ValueError(name)


def _arguments(texts: tuple[str, ...]) -> dict[str, Any]:
    pairs = [_argument(text) for text in texts]
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise click.UsageError(f"--arg {twice[0]} is given more than once")
    return dict(pairs)


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
