"""`cadre graph`: what an agent's file says as a Mermaid diagram."""

from importlib import import_module
from pathlib import Path

import click

from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import decided_by, declaration_of


@click.command("graph")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def command(file: Path) -> int:
    """Print what the agent in FILE consists of as a Mermaid diagram."""
    try:
        spec = read_agent(file)
    except SpecError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    module, _, attribute = declaration_of(decided_by(spec)).graph.partition(":")
    for line in getattr(import_module(module), attribute)(spec):
        click.echo(line)
    return ExitCode.OK
