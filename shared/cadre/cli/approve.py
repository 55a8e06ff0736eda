"""`cadre approve`: lets a held call be made as the model asked for it."""

from __future__ import annotations

import click

from cadre.cli.terminal.decide import decide


@click.command("approve")
@click.argument("call")
@click.option("--feedback", default="", help="A remark; kept in the run's journal.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(call: str, feedback: str, output: str) -> int:
    """Let CALL be made: its id, a beginning of one, or its run's when no other call of that run waits."""
    return decide(call, {"decision": "approve", "feedback": feedback}, output)
