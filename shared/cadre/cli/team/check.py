"""`cadre check`: what is wrong with a team, before anything is started; `cadre graph`: what an agent's file says, as
a diagram."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from cadre.cli.terminal.answer import printable
from cadre.cli.terminal.options import output_option, print_json
from cadre.engine.kind import deciding_kind
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.local.team_check import FileProblem, check_files
from cadre.spec.agent_file import read_agent

_COLOURS = {"error": "red", "missing": "red", "warning": "yellow"}


@click.command("check")
@click.argument("team", type=click.Path(path_type=Path), default=".")
@output_option("text")
def command(team: Path, output: str) -> int:
    """Check TEAM: a folder with a team.yaml, such a file, or the file of one agent. Nothing is started.

    Exit code 1 for errors and for what is missing; warnings alone are none.
    """
    found = check_files(team)
    if output == "json":
        print_json(msgspec.to_builtins(found))
    else:
        print_problems(found)
        counts = Counter(problem.level for problem in found)
        click.echo(
            ", ".join(f"{level}: {count}" for level, count in counts.items()) or f"{team}: all is well"
        )
    return ExitCode.FAILED if any(problem.level != "warning" for problem in found) else ExitCode.OK


def print_problems(problems: Sequence[FileProblem], *, err: bool = False) -> None:
    """Prints each problem on a line: its level, file, place, and text."""
    for problem in problems:
        file = Path(problem.file)
        shown = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else problem.file
        where = f"{shown}: {problem.path}: " if problem.path else f"{shown}: "
        level = click.style(f"{problem.level:<7}", fg=_COLOURS[problem.level])
        click.echo(f"{level}  {printable(where + problem.text)}", err=err)


@click.command("graph")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def graph(file: Path) -> int:
    """Print what the agent in FILE consists of as a Mermaid diagram."""
    try:
        spec = read_agent(file)
    except SpecError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    for line in deciding_kind(spec).graph(spec):
        click.echo(line)
    return ExitCode.OK
