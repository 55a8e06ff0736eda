"""`cadre reject`: turns a held call down."""

from __future__ import annotations

import click

from cadre.cli.terminal.decide import decide


@click.command("reject")
@click.argument("call")
@click.option("--feedback", default="", help="Why; the model reads it.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(call: str, feedback: str, output: str) -> int:
    """Turn CALL down: its id, a beginning of one, or its run's when no other call of that run waits."""
    return decide(call, {"decision": "reject", "feedback": feedback}, output)
