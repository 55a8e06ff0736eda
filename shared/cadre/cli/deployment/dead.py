"""`cadre dead`: messages that no service could handle; look at them, deliver them again, remove them."""

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found
from cadre.cli.terminal.output import print_text, table
from cadre.errors import CommandFailed, ExitCode
from cadre.views.words import brief

_PATH = "/v1/dead-letters"
_PAGE_SIZE = 200

_letters = click.argument("letters", nargs=-1, type=click.IntRange(min=1), metavar="[ID]...")


@click.group("dead")
def command() -> None:
    """Dead letters: messages that no service could handle, each with its reason."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@output_option("table")
def list_letters(limit: int, output: str) -> None:
    """List dead letters, newest first."""
    with Gateway() as gateway:
        letters = gateway.get(_PATH, limit=limit)["dead_letters"]
    headers = ["ID", "AT", "QUEUE", "KIND", "TRIES", "RUN", "REASON"]
    print_found(output, letters, lambda: table(headers, [*map(_row, letters)]), "no dead letters")


@command.command("show")
@click.argument("letter", type=click.IntRange(min=1), metavar="ID")
@output_option("text")
def show(letter: int, output: str) -> None:
    """Show dead letter ID with the message that it is about."""
    with Gateway() as gateway:
        found = gateway.get(f"{_PATH}/{letter}")
    print_found(output, found, lambda: _details(found))


@command.command("retry")
@_letters
@click.option("--all", "every", is_flag=True, help="Every dead letter, the oldest first.")
@output_option("text")
def retry(letters: tuple[int, ...], every: bool, output: str) -> int:
    """Deliver the messages of the dead letters ID again: after an upgrade, or when what was missing is back."""
    with Gateway() as gateway:
        return _each(_chosen(gateway, letters, every), lambda one: gateway.post(f"{_PATH}/{one}/retry", {}), output)


@command.command("drop")
@_letters
@click.option("--all", "every", is_flag=True, help="Every dead letter.")
@output_option("text")
def drop(letters: tuple[int, ...], every: bool, output: str) -> int:
    """Remove the dead letters ID and their messages for good."""
    with Gateway() as gateway:
        return _each(_chosen(gateway, letters, every), lambda one: gateway.delete(f"{_PATH}/{one}"), output)


def _chosen(gateway: Gateway, letters: tuple[int, ...], every: bool) -> list[int]:
    if every == bool(letters):
        raise click.UsageError("name the dead letters by their IDs, or take --all (`cadre dead list` has them)")
    if not every:
        return list(letters)
    return sorted(int(one["id"]) for one in gateway.items(_PATH, "dead_letters", "before", limit=_PAGE_SIZE))


def _each(letters: list[int], treat: Any, output: str) -> int:
    """Treat the letters one after the other; print a failure and go on. Return the exit code of the last failure."""
    done: list[dict[str, Any]] = []
    code = ExitCode.OK
    for letter in letters:
        try:
            answer = treat(letter)
        except CommandFailed as failure:
            if failure.code not in (ExitCode.NOT_FOUND, ExitCode.FAILED):
                raise
            print_text(f"cadre: {failure.message}", err=True)
            code = failure.code
            continue
        done.append(answer)
        if output == "text":
            click.echo(f"{answer['id']} {answer['done']}" + (f", run {answer['run']}" if answer["run"] else ""))
    if output == "json":
        click.echo(json.dumps(done))
    elif not letters:
        click.echo("no dead letters", err=True)
    return code


def _row(letter: dict[str, Any]) -> list[str]:
    return [
        str(letter["id"]),
        _when(letter),
        letter["queue"],
        "(gone)" if letter["gone"] else letter["kind"],
        str(letter["deliveries"]),
        letter["run"] or "-",
        brief(letter["reason"], 200),
    ]


def _details(letter: dict[str, Any]) -> Iterator[str]:
    yield f"letter   {letter['id']}"
    yield f"at       {_when(letter)}"
    yield f"queue    {letter['queue']}"
    yield f"tries    {letter['deliveries']}"
    yield f"reason   {brief(letter['reason'], 2000)}"
    if letter["gone"]:
        yield "message  removed from its stream: only the letter is left to drop"
        return
    yield f"kind     {letter['kind']}"
    yield f"run      {letter['run']}"
    if letter["call"]:
        yield f"call     {letter['call']}"
    yield f"from     {letter['sender']}"
    yield f"subject  {letter['subject']}"
    yield f"size     {letter['size']} bytes"
    if letter["encoding"] == "json":
        yield "message"
        yield json.dumps(letter["payload"], indent=2, ensure_ascii=False)
    else:
        yield f"message, as {letter['encoding']}"
        yield brief(letter["payload"], 4000)


def _when(letter: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter["at"])) if letter["at"] else "-"
