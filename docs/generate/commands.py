"""The page of commands: each verb and service of `cadre` with its arguments and options, as click has them."""

import inspect
import re

import click

from cadre.cli.main import SERVICES, VERBS_OF_ROOMS, group

_HEAD = """# Commands

Every command of `cadre` with its options, as `cadre COMMAND --help` prints them. [The command line](cli.md) says how
they are used. This page is generated.
"""


def page() -> str:
    """Return the whole page."""
    context = click.Context(group, info_name="cadre")
    rooms = {f"Commands: {room}": list(verbs) for room, verbs in VERBS_OF_ROOMS.items()}
    parts = [_HEAD]
    for title, names in {**rooms, "Services": list(SERVICES)}.items():
        parts.append(f"## {title.removeprefix('Commands: ').capitalize()}\n")
        for name in names:
            command = group.get_command(context, name)
            assert command is not None, name
            parts += _sections(command, click.Context(command, parent=context, info_name=name))
    return "\n".join(parts)


def _sections(command: click.Command, context: click.Context) -> list[str]:
    """Return the section of a command, and those of the commands in it."""
    parts = [f"### `{context.command_path}`\n"]
    if not isinstance(command, click.Group) or command.invoke_without_command:
        parts.append(f"    {_usage(command, context)}\n")
    parts += [f"{text}\n" for text in _paragraphs(command.help or "")]
    if rows := [_row(one, context) for one in command.params if isinstance(one, click.Option) and not one.hidden]:
        parts.append("\n".join(["| option | |", "|---|---|", *rows]) + "\n")
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            if not one.hidden:
                parts += _sections(one, click.Context(one, parent=context, info_name=name))
    return parts


def _usage(command: click.Command, context: click.Context) -> str:
    words = [word for one in command.params for word in one.get_usage_pieces(context)]
    options = ["[OPTIONS]"] if any(isinstance(one, click.Option) for one in command.params) else []
    return " ".join([context.command_path, *options, *words])


def _paragraphs(text: str) -> list[str]:
    cleaned = inspect.cleandoc(text).replace("\f", "")
    return [
        "\n".join(f"    {line}" for line in part.removeprefix("\b\n").splitlines())
        if part.startswith("\b")
        else " ".join(part.split())
        for part in re.split(r"\n\s*\n", cleaned)
        if part.strip()
    ]


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None, option.name
    names, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
    return f"| `{names}` | {text.replace('<', '&lt;')} |"
