"""`cadre tell`, `cadre signal` and `cadre cancel`: say something to a run that goes on, send it a signal, end it."""

import sys

import click

from cadre.cli.terminal.gateway import Gateway, run_handle
from cadre.cli.terminal.options import json_value, output_option, print_found
from cadre.client.errors import TimedOut
from cadre.protocol.messages import MessageMode


@click.command("tell")
@click.argument("run")
@click.argument("text")
@click.option(
    "--mode",
    type=click.Choice(["append", "next", "interrupt"]),
    default="append",
    show_default=True,
    help="When it is read: with the next model call; so, and before calls that have not begun; at once.",
)
@click.option("--by", default="", metavar="NAME", help="Who says it; kept in the run's journal.")
@output_option("text")
def tell(run: str, text: str, mode: MessageMode, by: str, output: str) -> None:
    """Say TEXT to RUN (`-`: from the standard input); its model reads it with its next call.

    RUN is an id, a unique beginning of one, or @last: any run of a tree.
    """
    with run_handle(run) as handle:
        sent = handle.tell(sys.stdin.read() if text == "-" else text, mode=mode, by=by)
    there = "has it" if sent.at is not None else "will have it once its agent is there"
    print_found(output, {"id": sent.id, "run": sent.run, "at": sent.at}, lambda: f"{sent.run} {there}")


@click.command("signal")
@click.argument("run")
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--by", default="", metavar="NAME", help="Who sends it; kept in the run's journal.")
@output_option("text")
def send_signal(run: str, name: str, payload: str | None, by: str, output: str) -> None:
    """Send RUN the signal NAME, with PAYLOAD as JSON (`-`: from the standard input).

    RUN is an id, a unique beginning of one, or @last. A signal that comes before the run waits for it is kept.
    """
    text = sys.stdin.read() if payload == "-" else payload
    content = None if text is None else json_value("PAYLOAD", text)
    with run_handle(run) as handle:
        sent = handle.signal(name, content, by=by)
    later = "" if sent.at is not None else " (kept until its agent is there)"
    print_found(output, {"id": sent.id, "run": sent.run, "at": sent.at}, lambda: f"{sent.run} {name}{later}")


_END_SECONDS = 10.0
"""The longest wait for the run to end."""


@click.command("cancel")
@click.argument("run")
@click.option("--reason", default="", help="Why; kept in the run's journal.")
@click.option("--now", is_flag=True, help="End it at once: what it has done is not made up for first.")
@output_option("text")
def cancel(run: str, reason: str, now: bool, output: str) -> None:
    """Cancel RUN: an id, a unique beginning of one, or @last."""
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        asked = ({"reason": reason} if reason else {}) | ({"now": True} if now else {})
        answer = gateway.post(f"/v1/runs/{identity}/cancel", asked)
    if answer["state"] in ("queued", "running", "waiting"):
        answer["state"] = _end_state(identity)
    print_found(output, answer, lambda: f"{answer['id']} {answer['state']}")


def _end_state(run: str) -> str:
    with run_handle(run) as handle:
        try:
            return handle.wait(_END_SECONDS).state
        except TimedOut:
            click.echo(
                "cadre: it ends once its agent has taken the request up and made up for what it did;"
                " `cadre cancel --now` does not wait for that",
                err=True,
            )
            return handle.detail().state
