"""`cadre plan` and `cadre queue`: the plan or the task queue of a run, shown and edited while it goes on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from cadre.api.runs import Edited
from cadre.cli.run_view.run_text import shown_plan, shown_queue
from cadre.cli.terminal.gateway import Gateway, run_handle
from cadre.cli.terminal.options import output_option, print_found
from cadre.client.errors import ClientError, Conflict, InvalidRequest
from cadre.errors import CommandFailed, ExitCode

if TYPE_CHECKING:
    from cadre.client.sync_client import RunHandle

_KEYS = ("step", "action", "task", "args", "details", "needs")
_HEAD = """\
# The plan of run {run}. Steps that have begun stay as they are; others may be changed, dropped and added.
# Saved as it is, or empty, it changes nothing.
"""


@click.group("plan")
def plan() -> None:
    """The plan of a run of a kind that has one."""


@plan.command("show")
@click.argument("run")
@output_option("text")
def show(run: str, output: str) -> None:
    """Show the plan of RUN with the state of each step."""
    with Gateway() as gateway:
        found = gateway.get(f"/v1/runs/{gateway.run_id(run)}/plan")
    print_found(output, found, lambda: shown_plan(found["state"]))


@plan.command("edit")
@click.argument("run")
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--by", default="", metavar="NAME", help="Who edits it; kept in the run's journal.")
def edit(run: str, file: str | None, by: str) -> None:
    """Edit the plan of RUN in $EDITOR, or make it the steps in FILE (`-`: the standard input).

    FILE is YAML or JSON: the list of all steps, or a mapping with it under `steps`.
    """
    with run_handle(run) as handle:
        before = handle.plan()
        if file is not None:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            changed = _send(handle, before, _steps_in(text), by)
        else:
            changed = _edit(handle, before, by)
    click.echo(changed)


def _edit(handle: "RunHandle", before: Edited, by: str) -> str:
    """Open the editor until its text is taken, or left as it is."""
    text = _HEAD.format(run=before.run) + _written(before)
    while True:
        edited = click.edit(text, extension=".yaml")
        if edited is None or edited.strip() in ("", text.strip()):
            return "nothing was changed"
        text = "".join(line for line in edited.splitlines(keepends=True) if not line.startswith("# refused: "))
        try:
            return _send(handle, before, _steps_in(text), by)
        except (InvalidRequest, Conflict, CommandFailed) as refused:
            if isinstance(refused, Conflict) and refused.problem != "edit-too-late":
                raise
            reason = " ".join((refused.message if isinstance(refused, ClientError) else str(refused)).split())
            text = f"# refused: {reason}\n{text}"


def _send(handle: "RunHandle", before: Edited, steps: list[Any], by: str) -> str:
    made = handle.edit(before, [{"op": "replace", "steps": steps}], by=by)
    if not isinstance(made, Edited):
        return f"{made.run} will have it once its agent is there"
    return "\n".join(shown_plan(made.state))


def _steps_in(text: str) -> list[Any]:
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandFailed(f"the plan cannot be read: {error}", ExitCode.USAGE) from error
    steps = found.get("steps") if isinstance(found, dict) else found
    if not isinstance(steps, list):
        raise CommandFailed("write the plan as a list of steps", ExitCode.USAGE)
    # What `cadre plan show -o json` shows of a step besides is no part of it.
    return [
        {key: one[key] for key in one if key not in ("state", "call", "result", "error")}
        if isinstance(one, dict)
        else one
        for one in steps
    ]


def _written(plan: Edited) -> str:
    """Return the plan as YAML, with a remark on each step that cannot be changed."""
    lines = []
    for step in plan.state["steps"]:
        if step["state"] not in ("pending", "skipped"):
            lines.append(f"# step {step['step']} is {step['state']}:")
        fields = {key: step[key] for key in _KEYS if step.get(key) not in (None, "", {})}
        lines.append(yaml.safe_dump([fields], sort_keys=False, allow_unicode=True, width=100).rstrip())
    return "\n".join(lines) + "\n"


_ARGUMENTS_OF_QUEUE = {"add": (1, "TEXT"), "drop": (1, "N"), "edit": (2, "N TEXT"), "move": (2, "N PLACE")}


@click.command("queue")
@click.argument("run")
@click.argument("action", required=False, type=click.Choice([*_ARGUMENTS_OF_QUEUE]))
@click.argument("arguments", nargs=-1)
@click.option("--at", type=click.IntRange(min=1), help="Place of the task to be added; the last unless given.")
@click.option("--version", type=int, help="Edit this version only, as it was shown; else the present one.")
@click.option("--by", default="", metavar="NAME", help="Who edits; kept in the run's journal.")
@output_option("text")
def queue(  # noqa: PLR0913 - options
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
    with run_handle(run) as handle:
        queue = handle.queue()
        if action is not None:
            operation = _queue_operation(queue.state["pending"], action, arguments, at)
            queue.version = queue.version if version is None else version
            made = handle.edit(queue, [operation], by=by)
            if not isinstance(made, Edited):
                click.echo(f"{handle.id} will have it once its agent is there, unless it changes before")
                return
            queue = made
    found = {"run": queue.run, "version": queue.version, **queue.state}
    print_found(output, found, lambda: [f"version {queue.version}", *shown_queue(queue.state)])


def _queue_operation(pending: list[str], action: str, arguments: tuple[str, ...], at: int | None) -> dict[str, Any]:
    count, form = _ARGUMENTS_OF_QUEUE[action]
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
        raise click.UsageError(f"{text!r} is no place in the queue, which has {most} tasks that are not begun")
    return int(text)
