"""The command `member`: an agent of another make as a member of a team, in one process with the agent that stands for
it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import click

from cadre.adapters.local_stack import find_nats
from cadre.adapters.tool_entries import tools_of_agent
from cadre.errors import SetupError, SpecError
from cadre.prompting.prompts import prompts_for
from cadre.service import frame
from cadre.service.agent import AgentHost, AgentHosts
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.settings import Settings, read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import agent_of, read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.remote_agent import DOCUMENT, Permissions
from cadre.telemetry.metrics.meters import Sample
from cadre_tools.host import ToolHost


@click.command("member")
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--acp", "program", metavar="COMMAND", help="A program that speaks the Agent Client Protocol.")
@click.option(
    "--synadia",
    "on_nats",
    metavar="AGENT/OWNER/SESSION",
    help="An agent on NATS that speaks Synadia's protocol.",
)
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
@click.option("--timeout", default="1h", show_default=True, help="How long a task may take.")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one.  [CADRE_PORT]")
def command(
    file: Path | None, program: str | None, on_nats: str | None, port: int | None, **about: Any
) -> None:
    """Serve an agent of another make as a member of teams, until told to stop: one that an agent's FILE names (kind:
    RemoteAgent), the COMMAND of --acp, or the agent on NATS of --synadia. A program works on its tasks in its
    workspace, and asks people before it does what needs a permission."""
    if [file, program, on_nats].count(None) != 2:
        raise click.UsageError(
            "name the FILE of a RemoteAgent, a program with --acp COMMAND, or an agent on NATS with --synadia"
        )
    try:
        find_nats()
        settings = read_settings(port=port)
        if file is not None:
            spec, folder = read_agent(file), file.resolve().parent
        elif on_nats is not None:
            spec, folder = _spec_on_nats(on_nats, **about), Path.cwd()
        else:
            assert program is not None
            spec, folder = _spec_of(program, **about), Path.cwd()
        serve(spec, folder, settings)
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)


def serve(spec: AgentSpec, folder: Path, settings: Settings) -> None:
    """Serves the agent and the tools that its kind brings, until told to stop; paths in its file are relative to the
    folder. Raises SetupError, and SystemExit with the status of a process that could not go on."""
    if not facts_of(spec).tools:
        raise SpecError(
            f"{spec.name} is no agent of another make (kind: {DOCUMENT}): serve it with `cadre agent`"
        )
    tools, prompts = tools_of_agent(spec, folder, to_serve=True), prompts_for(spec)

    async def start(platform: Platform) -> MemberHost:
        executor = ToolHost(platform, tools)
        await executor.start()
        agent = AgentHosts(platform, [AgentHost(spec, prompts, platform, None)])
        await agent.start()
        return MemberHost(agent, executor)

    if status := frame.run(f"member {spec.name}", settings, start):
        raise SystemExit(status)


class MemberHost:
    """The service's part of its process (`cadre.service.platform.Part`): the agent, and what speaks for it."""

    app: AsgiApp | None = None

    def __init__(self, agent: AgentHosts, executor: ToolHost) -> None:
        self._agent = agent
        self._executor = executor

    def unready(self) -> str | None:
        """What is missing, in one line; None when it can work."""
        return self._agent.unready() or self._executor.unready()

    async def samples(self) -> list[Sample]:
        """The figures of its queues."""
        return [*await self._agent.samples(), *await self._executor.samples()]

    async def drain(self, grace: float) -> None:
        """Takes no more work; what is in hand has `grace` seconds. A program that is at work ends with this process."""
        await asyncio.gather(self._agent.drain(grace), self._executor.drain(grace))


def _spec_of(
    program: str,
    workspace: Path | None,
    name: str | None,
    description: str | None,
    permissions: Permissions,
    timeout: str,
) -> AgentSpec:
    """Raises SpecError."""
    first = Path(program.split()[0]).stem if program.split() else ""
    spec: dict[str, Any] = {
        "description": description or f"{first}: does whole tasks by itself, in a workspace of its own.",
        "command": program,
        "workspace": str((workspace or Path.cwd()).resolve()),
        "permissions": permissions,
        "timeout": timeout,
    }
    return _agent_of(name or first, spec)


def _spec_on_nats(
    who: str, name: str | None, description: str | None, timeout: str, **others: Any
) -> AgentSpec:
    """Raises SpecError."""
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
    own_name = re.sub(r"\W+", "_", name).strip("_")
    document = {"apiVersion": "cadre.dev/v1", "kind": DOCUMENT, "metadata": {"name": own_name}, "spec": spec}
    return agent_of(document, Path.cwd())
