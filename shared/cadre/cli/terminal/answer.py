"""What a model wrote, as it is printed on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from cadre.cli.terminal.file_values import describe_files


def as_text(output: Any) -> str:
    """Text unchanged, anything else as JSON.

    Files in it are named in words; commands that download them follow below.
    """
    value, downloads = describe_files(output)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return "\n".join([text, *downloads])


def print_text(text: str) -> None:
    """Prints the text: to the letter into a pipe or file, without control characters on a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, color=True)


def printable(text: str) -> str:
    """The text with a mark for each character that could move the cursor or change colours."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
