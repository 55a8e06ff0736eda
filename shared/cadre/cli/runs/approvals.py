"""`cadre approvals`, `approve`, `reject` and `correct`: the calls that wait for a person, and the decisions on them."""

import time
from typing import Any

import click

from cadre.cli.runs.ask import PATH, decide
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import json_object, key_values, output_option, print_json
from cadre.cli.terminal.output import table
from cadre.views.words import brief, seconds

_call = click.argument("call")
_why = click.option("--feedback", default="", help="Why; the model reads it.")


@click.command("approvals")
@click.option("--agent", metavar="NAME", help="Only calls of this agent.")
@click.option("--run", metavar="RUN", help="Only calls of this run and the runs below it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@output_option("table")
def command(agent: str | None, run: str | None, limit: int, output: str) -> None:
    """List the calls that wait for a person, newest first."""
    with Gateway() as gateway:
        identity = gateway.run_id(run) if run is not None else None
        page = gateway.get(PATH, agent=agent, run=identity, limit=limit)
    calls = page["approvals"]
    if output == "json":
        print_json(calls)
    elif not calls:
        click.echo("no call waits for a person", err=True)
    else:
        now = time.time()
        rows = [_row(call, now) for call in calls]
        click.echo(table(["CALL", "AGENT", "WAITS", "EXPIRES", "WHY", "ASKS FOR"], rows))
        if page["next"] is not None:
            click.echo("cadre: there are more: --limit shows them", err=True)


@click.command("approve")
@_call
@click.option("--feedback", default="", help="A remark; kept in the run's journal.")
@click.option("--only", type=int, multiple=True, metavar="N", help="Of proposed calls make the Nth, from 1.")
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="JSON",
    help='Of proposed calls: {"call": 1, "arguments": {…}}, {"call": 2, "drop": true}, {"tool": NAME, …}.',
)
@click.option("--know", multiple=True, metavar="ARGUMENT", help="Policies know its value for the rest of the run.")
@output_option("text")
def approve(
    call: str,
    feedback: str,
    only: tuple[int, ...],
    edits: tuple[str, ...],
    know: tuple[str, ...],
    output: str,
) -> int:
    """Let CALL be made: its id, a beginning of one, or its run's when no other call of that run waits.

    Of a question that proposes calls all are made; with --only those alone, with --edit as it changes, drops and adds
    them. --know recipient has further calls to that recipient pass rules about where it comes from. All of these may be
    given several times.
    """
    content: dict[str, Any] = {"verdict": "approved", "feedback": feedback}
    content |= {"only": [*only]} if only else {}
    content |= {"edits": [json_object("--edit", edit) for edit in edits]} if edits else {}
    content |= {"know": [*know]} if know else {}
    return decide(call, content, output)


@click.command("reject")
@_call
@_why
@output_option("text")
def reject(call: str, feedback: str, output: str) -> int:
    """Turn CALL down: its id, a beginning of one, or its run's when no other call of that run waits."""
    return decide(call, {"verdict": "rejected", "feedback": feedback}, output)


@click.command("correct")
@_call
@click.option("--tool", metavar="NAME", help="Call this tool or team member instead.")
@click.option("--arguments", metavar="JSON", help="All arguments, as a JSON object.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change one argument; JSON if it parses.")
@_why
@output_option("text")
def correct(
    call: str, tool: str | None, arguments: str | None, changes: tuple[str, ...], feedback: str, output: str
) -> int:
    """Have CALL made with other arguments, or another call in its place.

    CALL is its id, a beginning of one, or its run's when no other call of that run waits. --set changes single
    arguments of --arguments, else of the call as it stands.
    """
    if tool is None and arguments is None and not changes:
        raise click.UsageError("say what is to change: --set NAME=VALUE, --arguments JSON or --tool NAME")
    given = json_object("--arguments", arguments) if arguments is not None else None
    changed = key_values("--set", changes)
    content: dict[str, Any] = {"verdict": "corrected", "feedback": feedback}
    if given is not None or changed:
        content |= {"arguments": {**(given or {}), **changed}, "replace": given is not None}
    if tool is not None:
        content["tool"] = tool
    return decide(call, content, output)


def _row(call: dict[str, Any], now: float) -> list[str]:
    expires = call.get("expires_at")
    is_question = call["kind"] == "question"
    return [
        call["call"],
        call["agent"],
        seconds(max(0.0, now - call["requested_at"])),
        "-" if expires is None else f"in {seconds(expires - now)}" if expires > now else "now",
        "question" if is_question else brief(call["reason"], 40),
        brief(call["headline"], 200),
    ]
