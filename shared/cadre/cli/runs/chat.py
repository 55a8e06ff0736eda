"""`cadre chat`: a conversation with an agent on the terminal, each turn a run of one session."""

import asyncio
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import click

from cadre.cli.runs.launch import launch
from cadre.cli.terminal.options import bound_options, bounds, utf8
from cadre.errors import ExitCode

_HELP = "/new starts a new conversation, /help shows this, Ctrl-D ends it; Ctrl-C cancels an answer in work"


@click.command("chat")
@click.argument("agent")
@click.option("--session", metavar="NAME", help="Conversation to begin, or to go on with.")
@click.option("--user", metavar="NAME", help="Person that it works for: whose memories it may share.")
@click.option("--reset", is_flag=True, help="Start the session afresh, without its earlier runs.")
@click.option("--ask/--no-ask", default=None, help="Decide here on calls that wait for a person.")
@bound_options
def command(**options: Any) -> int:
    """Talk with AGENT: each line is a task, each answer knows what was said before.

    The course of a run goes to stderr, answers to stdout; without a terminal every line of standard input is a turn.
    """
    if options["reset"] and not options["session"]:
        raise click.UsageError("--reset needs --session NAME: the conversation to start afresh")
    session = options["session"] or f"chat-{secrets.token_hex(4)}"
    reset, code = options["reset"], ExitCode.OK
    for line in _lines():
        match line.strip():
            case "":
                continue
            case "/help":
                click.echo(_HELP, err=True)
            case "/new":
                reset = True
                click.echo("cadre: a new conversation begins", err=True)
            case text:
                request = {
                    "agent": options["agent"],
                    "task": utf8("the task", text),
                    "session": session,
                    "reset": reset or None,
                    "user": options["user"],
                    **bounds(options),
                }
                given = {key: value for key, value in request.items() if value is not None}
                following = {"output": "text", "detach": False, "timeout": None, "ask": options["ask"]}
                code = ExitCode(asyncio.run(launch(given, following)))
                reset = False
    click.echo(f"cadre: go on with `cadre chat {options['agent']} --session {session}`", err=True)
    return code


def _lines() -> Iterator[str]:
    """Yield what a person says, line by line, until the end of the input or Ctrl-C at the prompt."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    import readline  # noqa: F401  (lines can be edited, and earlier ones called back)

    click.echo(f"cadre: {_HELP}", err=True)
    while True:
        try:
            yield input("> ")
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return
