"""`cadre correct`: has a held call made otherwise than the model asked for it."""

from __future__ import annotations

from typing import Any

import click

from cadre.cli.terminal.arguments import json_object, key_values
from cadre.cli.terminal.decide import PATH, call_id, me, tell
from cadre.client.gateway import Gateway


@click.command("correct")
@click.argument("call")
@click.option("--tool", metavar="NAME", help="Call this tool or team member instead.")
@click.option("--arguments", metavar="JSON", help="All arguments, as a JSON object.")
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change one argument; JSON if it parses."
)
@click.option("--feedback", default="", help="Why; the model reads it.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    call: str, tool: str | None, arguments: str | None, changes: tuple[str, ...], feedback: str, output: str
) -> int:
    """Have CALL made with other arguments, or another call in its place.

    CALL is its id, a beginning of one, or its run's when no other call of that run waits. --set changes single
    arguments of --arguments, else of the call as it stands.
    """
    if tool is None and arguments is None and not changes:
        raise click.UsageError("say what is to change: --set KEY=VALUE, --arguments JSON or --tool NAME")
    given = json_object("--arguments", arguments) if arguments is not None else None
    changed = key_values("--set", changes)
    with Gateway() as gateway:
        identity = call_id(gateway, call)
        if changed:
            given = {
                **(gateway.get(f"{PATH}/{identity}")["arguments"] if given is None else given),
                **changed,
            }
        content: dict[str, Any] = {"decision": "correct", "feedback": feedback, "by": me()}
        content |= {key: value for key, value in (("tool", tool), ("arguments", given)) if value is not None}
        return tell(gateway.post(f"{PATH}/{identity}", content), output)
