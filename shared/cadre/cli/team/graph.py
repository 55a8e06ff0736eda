"""`cadre graph`: what an agent's file says as a Mermaid diagram."""

from pathlib import Path

import click

from cadre.engine.kind import deciding_kind
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.spec.agent_file import read_agent


@click.command("graph")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def command(file: Path) -> int:
    """Print what the agent in FILE consists of as a Mermaid diagram."""
    try:
        spec = read_agent(file)
    except SpecError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    for line in deciding_kind(spec).graph(spec):
        click.echo(line)
    return ExitCode.OK
