"""A person's decision on a held call: which call is meant, who decides, what came of it."""

import getpass
from typing import Any

import click

from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import print_json
from cadre.errors import CommandFailed, ExitCode

PATH = "/v1/approvals"
_MAX_NAMED = 5


def call_id(gateway: Gateway, reference: str) -> str:
    """Id of the held call that an id, a beginning of one, or its run stands for.

    Raises CommandFailed: NOT_FOUND, or USAGE when several calls of the run wait.
    """
    identity = gateway.run_id(reference)
    known: dict[str, Any] | None = None
    try:
        known = gateway.get(f"{PATH}/{identity}")
    except CommandFailed as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
    if known is not None and known["state"] == "pending":
        return identity
    waiting = [call["call"] for call in gateway.get(PATH, run=identity, limit=_MAX_NAMED + 1)["approvals"]]
    if len(waiting) == 1:
        return str(waiting[0])
    if waiting:
        some = ", ".join(waiting[:_MAX_NAMED]) + (", …" if len(waiting) > _MAX_NAMED else "")
        raise CommandFailed(f"several calls of {identity} wait; name one: {some}", ExitCode.USAGE)
    if known is not None:
        return identity
    raise CommandFailed(
        f"no call of {identity} waits for a person: `cadre approvals` lists them", ExitCode.NOT_FOUND
    )


def decide(reference: str, content: dict[str, Any], output: str) -> int:
    """Posts the decision on a call and prints what came of it; returns the exit code."""
    with Gateway() as gateway:
        call = call_id(gateway, reference)
        return print_decision(gateway.post(f"{PATH}/{call}", {**content, "by": login_name()}), output)


def print_decision(answer: dict[str, Any], output: str) -> int:
    """Prints the gateway's answer to a decision; returns the exit code."""
    if output == "json":
        print_json(answer)
        return ExitCode.OK
    print_text(f"{answer['call']} {answer['verdict']}" + (f" by {answer['by']}" if answer["by"] else ""))
    if answer.get("at") is None:
        click.echo("cadre: no agent has taken it up yet; it is kept and will count", err=True)
    return ExitCode.OK


def login_name() -> str:
    """The login name of the person at the terminal; empty where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
