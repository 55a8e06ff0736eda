"""Define `cadre new`: write an agent, a tool or a team that runs as it stands, with a test."""

import keyword
from pathlib import Path

import click

from cadre.cli.terminal.output import table
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
        raise click.UsageError(f"{name!r} names no Python function: use letters, digits and '_', as in count_words")
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
    """Write them all, or none. Raises CommandFailed."""
    there = [name for name in files if Path(name).exists()]
    if there:
        raise CommandFailed(f"{', '.join(there)}: there already; choose another name or folder", ExitCode.USAGE)
    for name, text in files.items():
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("xb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
        except OSError as error:
            raise CommandFailed(f"{name}: cannot be written: {error.strerror}") from error
        click.echo(f"wrote {name}")


def _next(*commands: str, test: str) -> None:
    click.echo("\nTo run it, each command in its own terminal:")
    for line in commands:
        click.echo(f"  {line}")
    click.echo(f"To test it, without a model or a server (pip install pytest):\n  pytest {test}")


_AGENT = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  description: {description}
  instructions: |
    Answer briefly.
{more}"""

_TOOL = '''\
"""A tool: `cadre tools` serves it to every agent that names it."""

from cadre import tool


@tool(read_only=True)
def {name}(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())
'''

_TEAM = """\
apiVersion: cadre.dev/v1
kind: Team
metadata: {{name: {name}}}
spec:
  agents: [lead.yaml, helper.yaml]
  tools: [tools.py]
  script: script.yaml   # canned replies, for as long as CADRE_MODEL_URL is not set
  demo: {{agent: lead, task: How many words has this sentence?}}
"""

_SCRIPT = """\
# Answers of the scripted model, the first rule that matches; where none does it calls every tool once, then answers.
rules: []
"""

_TEST = '''\
"""A test without a model, a server or a network: docs/testing.md."""

import asyncio
from pathlib import Path

from cadre.testing import Team, answer{imports}

HERE = Path(__file__).parent


def test_{function}() -> None:
    async def play() -> None:
{body}
    asyncio.run(play())
'''

_AGENT_PLAY = """\
        async with Team([HERE / "{name}.yaml"], [], [answer("42")]) as team:
            assert await team.run("{name}", "What is the answer?") == "42"
"""

_TOOL_PLAY = """\
        asker = Agent(name="asker", description="Asks.", tools=["{name}"])
        script = [call("{name}", text="to be or not to be"), answer("six")]
        async with Team([asker], [HERE / "{name}.py"], script) as team:
            assert await team.run("asker", "How many words?") == "six"
            assert [one.output for one in team.calls] == [6]
"""

_TEAM_PLAY = """\
        models = {{
            "lead": [call("helper", task="Count the words of 'to be'."), answer("two")],
            "helper": [call("count_words", text="to be"), answer("2")],
        }}
        async with Team([HERE / "lead.yaml", HERE / "helper.yaml"], [HERE / "tools.py"], models) as team:
            assert await team.run("lead", "How many words has 'to be'?") == "two"
            assert [one.output for one in team.calls] == [2]
"""


def test_file(name: str) -> str:
    """Name of the file with the test of what is called `name`."""
    return f"test_{name.replace('-', '_')}.py"


def agent_files(name: str) -> dict[str, str]:
    """Return an agent and its test."""
    return {
        f"{name}.yaml": _AGENT.format(name=name, description="Answers questions.", more=""),
        test_file(name): _test(name, _AGENT_PLAY),
    }


def tool_files(name: str) -> dict[str, str]:
    """Return a tool and its test."""
    test = _test(name, _TOOL_PLAY, ", call").replace(
        "from cadre.testing", "from cadre import Agent\nfrom cadre.testing"
    )
    return {f"{name}.py": _TOOL.format(name=name), test_file(name): test}


def team_files(name: str) -> dict[str, str]:
    """Return a folder with a manager, its member, the member's tool, and their test."""
    lead = _AGENT.format(name="lead", description="Leads the team.", more="  team: [helper]\n")
    helper = _AGENT.format(name="helper", description="Counts words.", more="  tools: [count_words]\n")
    files = {
        "team.yaml": _TEAM.format(name=name),
        "lead.yaml": lead,
        "helper.yaml": helper,
        "tools.py": _TOOL.format(name="count_words"),
        "script.yaml": _SCRIPT,
        test_file(name): _test(name, _TEAM_PLAY, ", call"),
    }
    return {f"{name}/{file}": text for file, text in files.items()}


def _test(name: str, body: str, imports: str = "") -> str:
    return _TEST.format(function=name.replace("-", "_"), imports=imports, body=body.format(name=name))
