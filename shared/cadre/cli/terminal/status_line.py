"""Lines about what goes on, on stderr, which no reader that has gone away may turn into an error."""

import os
import sys

import click


def print_status(line: str) -> None:
    """Prints the line on stderr. Where nobody reads any more, this and all later output goes nowhere."""
    try:
        click.echo(line, err=True)
    except OSError:
        discard_output()


def discard_output() -> None:
    """Sends stdout and stderr nowhere from now on: neither writing to them nor closing them fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
