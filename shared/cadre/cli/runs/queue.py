"""`cadre queue`: shows the tasks that a run has queued, and edits those that are not begun."""

import json
from typing import Any

import click

from cadre.api.runs import Edited
from cadre.cli.run_view.run_text import shown_queue
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway, command_errors
from cadre.cli.terminal.options import output_option

_ARGUMENTS = {"add": (1, "TEXT"), "drop": (1, "N"), "edit": (2, "N TEXT"), "move": (2, "N PLACE")}


@click.command("queue")
@click.argument("run")
@click.argument("action", required=False, type=click.Choice([*_ARGUMENTS]))
@click.argument("arguments", nargs=-1)
@click.option(
    "--at", type=click.IntRange(min=1), help="Place of the task to be added; the last unless given."
)
@click.option("--version", type=int, help="Edit this version only, as it was shown; else the present one.")
@click.option("--by", default="", metavar="NAME", help="Who edits; kept in the run's journal.")
@output_option("text")
def command(  # noqa: PLR0913 - options
    run: str,
    action: str | None,
    arguments: tuple[str, ...],
    at: int | None,
    version: int | None,
    by: str,
    output: str,
) -> None:
    """Show the queue of RUN, of an agent of kind task_queue, or edit it: add TEXT, drop N, edit N TEXT, move N PLACE.

    RUN is an id, a unique beginning of one, or @last. N and PLACE count the tasks that are not begun, from 1.
    """
    from cadre.client.sync_client import Client  # the client's weight is not the help's

    with Gateway() as gateway:
        identity = gateway.run_id(run)
    with command_errors(), Client(gateway.url) as client:
        handle = client.attach(identity)
        queue = handle.queue()
        if action is not None:
            operation = _operation(queue.state["pending"], action, arguments, at)
            queue.version = queue.version if version is None else version
            made = handle.edit(queue, [operation], by=by)
            if not isinstance(made, Edited):
                click.echo(f"{identity} will have it once its agent is there, unless it changes before")
                return
            queue = made
    if output == "json":
        click.echo(json.dumps({"run": queue.run, "version": queue.version, **queue.state}))
    else:
        print_text("\n".join([f"version {queue.version}", *shown_queue(queue.state)]))


def _operation(pending: list[str], action: str, arguments: tuple[str, ...], at: int | None) -> dict[str, Any]:
    count, form = _ARGUMENTS[action]
    if len(arguments) != count:
        raise click.UsageError(f"write it so: cadre queue RUN {action} {form}")
    if at is not None and action != "add":
        raise click.UsageError("--at is for `add`: `move N PLACE` moves a task")
    if action == "add":
        return {"op": "add", "task": arguments[0]} | ({"at": at - 1} if at is not None else {})
    task = pending[_number(arguments[0], len(pending)) - 1]
    match action:
        case "edit":
            return {"op": "edit", "task": task, "text": arguments[1]}
        case "move":
            return {"op": "move", "task": task, "at": _number(arguments[1], len(pending)) - 1}
        case _:
            return {"op": "drop", "task": task}


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise click.UsageError(
            f"{text!r} is no place in the queue, which has {most} tasks that are not begun"
        )
    return int(text)
