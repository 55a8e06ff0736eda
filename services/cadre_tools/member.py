"""The command `member`: an agent of another make as a member of a team, in one process with the agent that stands for
it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from cadre.adapters.local_stack import find_nats, model_settings
from cadre.adapters.tool_entries import tools_of_agent
from cadre.errors import SetupError, SpecError
from cadre.prompting.prompts import prompts_for
from cadre.service import frame
from cadre.service.agent import AgentHost, AgentHosts
from cadre.service.platform import Platform, Together
from cadre.service.program_host import ProgramHost
from cadre.settings import Settings, read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import agent_of, read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.remote_agent import DOCUMENT, Permissions
from cadre_tools.host import ToolHost


@click.command("member")
@click.argument("what", required=False, metavar="[FILE]")
@click.option("--acp", "program", metavar="COMMAND", help="A program that speaks the Agent Client Protocol.")
@click.option(
    "--synadia",
    "on_nats",
    metavar="AGENT/OWNER/SESSION",
    help="An agent on NATS that speaks Synadia's protocol.",
)
@click.option("--python", help="The Python that has a program's packages.  [the one of this command]")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool of Cadre that a program may call.")
@click.option("--workspace", type=click.Path(path_type=Path), help="The folder that it works in.  [here]")
@click.option("--name", help="The agent's name.  [that of the program]")
@click.option("--description", help="What managers' models read of it.")
@click.option(
    "--permissions",
    type=click.Choice(["ask", "allow", "refuse"]),
    default="ask",
    show_default=True,
    help="What becomes of the permissions that it asks for; ask: they are approvals.",
)
@click.option("--timeout", default="1h", show_default=True, help="How long a task may take there.")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one.  [CADRE_PORT]")
def command(
    what: str | None,
    program: str | None,
    on_nats: str | None,
    python: str | None,
    tools: tuple[str, ...],
    port: int | None,
    **about: Any,
) -> None:
    """Serve an agent of another make as a member of teams, until stopped: a function of any framework, as
    FILE.py:NAME; the agent that a YAML FILE describes (kind: RemoteAgent, or kind: program); the COMMAND of --acp; or
    the agent on NATS of --synadia. A function survives the death of its process; a COMMAND works in its workspace, and
    asks people before it does what needs a permission."""
    if [what, program, on_nats].count(None) != 2:
        raise click.UsageError(
            "name a function as FILE.py:NAME, the FILE of an agent, a program with --acp COMMAND, or an agent on NATS"
            " with --synadia"
        )
    try:
        find_nats()
        settings = read_settings(port=port)
        if what is not None and not what.endswith((".yaml", ".yml")):
            spec, folder = _spec_of_function(what, python, tools, **about), Path.cwd()
        elif python is not None or tools:
            raise SpecError("--python and --tool are said of a function, FILE.py:NAME: a file says them itself")
        elif what is not None:
            spec, folder = _read_file(Path(what)), Path(what).resolve().parent
        elif on_nats is not None:
            spec, folder = _spec_on_nats(on_nats, **about), Path.cwd()
        else:
            assert program is not None
            spec, folder = _spec_of(program, **about), Path.cwd()
        serve(spec, folder, settings)
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)


def _read_file(file: Path) -> AgentSpec:
    """Raise SpecError."""
    if not file.is_file():
        raise SpecError("there is no such file", files=(file,))
    return read_agent(file)


def serve(spec: AgentSpec, folder: Path, settings: Settings) -> None:
    """Serve the agent and the tools that its kind brings, until stopped; paths in its file are relative to the folder.
    Raises SetupError, and SystemExit with the status of a process that could not go on."""
    facts = facts_of(spec)
    if not facts.tools and not facts.serves_pools:
        raise SpecError(
            f"{spec.name} is no agent of another make (kind: {DOCUMENT}, or kind: program): serve it with `cadre agent`"
        )
    tools = tools_of_agent(spec, folder, to_serve=True) if facts.tools else []
    prompts = prompts_for(spec)

    async def start(platform: Platform) -> Together:
        worker = ProgramHost(platform, spec, folder) if facts.serves_pools else ToolHost(platform, tools)
        await worker.start()
        agent = AgentHosts(platform, [AgentHost(spec, prompts, platform, None, model_settings)])
        await agent.start()
        return Together([agent, worker])

    if status := frame.run(f"member {spec.name}", settings, start):
        raise SystemExit(status)


def _spec_of_function(
    function: str,
    python: str | None,
    tools: tuple[str, ...],
    name: str | None,
    description: str | None,
    **others: Any,
) -> AgentSpec:
    """Raise SpecError."""
    if others["workspace"] is not None or others["permissions"] != "ask":
        raise SpecError("--workspace and --permissions are said of a program of --acp")
    source, _, main = function.rpartition(":")
    if not source or not main.isidentifier():
        raise SpecError(
            f"{function!r} names no function: write FILE.py:NAME or PACKAGE.MODULE:NAME, such as trips.py:main"
        )
    stem = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
    document = {
        "apiVersion": "cadre.dev/v1",
        "kind": "Agent",
        "metadata": {"name": name or _name_of(stem)},
        "spec": {
            "description": description or f"Runs {function}.",
            "kind": "program",
            "program": {"main": function, "python": python or ""},
            "tools": list(tools),
        },
    }
    return agent_of(document, Path.cwd())


def _spec_of(
    program: str,
    workspace: Path | None,
    name: str | None,
    description: str | None,
    permissions: Permissions,
    timeout: str,
) -> AgentSpec:
    """Raise SpecError."""
    first = Path(program.split()[0]).stem if program.split() else ""
    spec: dict[str, Any] = {
        "description": description or f"{first}: does whole tasks by itself, in a workspace of its own.",
        "command": program,
        "workspace": str((workspace or Path.cwd()).resolve()),
        "permissions": permissions,
        "timeout": timeout,
    }
    return _agent_of(name or first, spec)


def _spec_on_nats(who: str, name: str | None, description: str | None, timeout: str, **others: Any) -> AgentSpec:
    """Raise SpecError."""
    agent, _, rest = who.partition("/")
    owner, _, session = rest.partition("/")
    if others["workspace"] is not None or others["permissions"] != "ask":
        raise SpecError("--workspace and --permissions are said of a program: the agent on NATS has its own")
    spec = {
        "description": description or f"{agent} of {owner}: does whole tasks by itself, on NATS.",
        "nats": {"agent": agent, "owner": owner, "session": session},
        "timeout": timeout,
    }
    return _agent_of(name or agent, spec)


def _agent_of(name: str, spec: dict[str, Any]) -> AgentSpec:
    about = {"name": _name_of(name)}
    document = {"apiVersion": "cadre.dev/v1", "kind": DOCUMENT, "metadata": about, "spec": spec}
    return agent_of(document, Path.cwd())


def _name_of(text: str) -> str:
    """Return the text as the name of an agent."""
    return re.sub(r"\W+", "_", text).strip("_")
