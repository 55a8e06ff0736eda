"""Define `cadre new`: write an agent, a tool or a team that runs as it stands, with a test."""

import keyword
from pathlib import Path

import click

from cadre.cli.team.skeletons import agent_files, team_files, test_file, tool_files
from cadre.cli.terminal.table import table
from cadre.deploy.team_file import read_team
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.local.shipped_teams import files_of, shipped_team, shipped_teams
from cadre.spec.names import check_name


@click.group("new")
def command() -> None:
    """Write a skeleton that runs, with a test; nothing is ever overwritten."""


@command.command("agent")
@click.argument("name")
def new_agent(name: str) -> None:
    """Write NAME.yaml and a test of it."""
    _check(name)
    _write(agent_files(name))
    _next(
        "cadre up",
        f"cadre agent {name}.yaml",
        f'cadre run {name} "What can you do?"',
        test=test_file(name),
    )


@command.command("tool")
@click.argument("name")
def new_tool(name: str) -> None:
    """Write NAME.py, which has the tool NAME, and a test of it."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise click.UsageError(
            f"{name!r} names no Python function: use letters, digits and '_', as in count_words"
        )
    _write(tool_files(name))
    _next("cadre up", f"cadre tools {name}.py", "cadre ps", test=test_file(name))


@command.command("team")
@click.argument("name")
@click.option("--template", help="A team that comes with Cadre, as `cadre new templates` lists them.")
def new_team(name: str, template: str | None) -> None:
    """Write the folder NAME: two agents, a tool, answers for the scripted model, and a test of them; or the whole
    team of a template."""
    _check(name)
    if template is not None:
        files = files_of(shipped_team(template), name)
        _write({f"{name}/{path}": data for path, data in files.items()})
        click.echo(f"\nTo see it do its work, and the answer checked:\n  cadre up {name} --run")
        return
    _write(team_files(name))
    test = f"{name}/{test_file(name)}"
    _next(f"cadre up {name}", 'cadre run lead "How many words has this sentence?"', test=test)


@command.command("templates")
def list_templates() -> None:
    """List the teams that `cadre new team --template` starts from."""
    rows = [(name, read_team(folder).description) for name, folder in shipped_teams().items()]
    click.echo(table(["NAME", "WHAT IT DOES"], rows))


def _check(name: str) -> None:
    try:
        check_name("agent", name)
    except SpecError as error:
        raise click.UsageError(str(error)) from error


def _write(files: dict[str, str] | dict[str, bytes]) -> None:
    """Writes them all, or none. Raises CommandFailed."""
    there = [name for name in files if Path(name).exists()]
    if there:
        raise CommandFailed(
            f"{', '.join(there)}: there already; choose another name or folder", ExitCode.USAGE
        )
    for name, text in files.items():
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("xb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
        except OSError as error:
            raise CommandFailed(f"{name}: cannot be written: {error.strerror}") from error
        click.echo(f"wrote {name}")


def _next(*commands: str, test: str) -> None:
    click.echo("\nTo run it, each in a terminal of its own:")
    for line in commands:
        click.echo(f"  {line}")
    click.echo(f"To test it, without a model or a server (pip install pytest):\n  pytest {test}")
