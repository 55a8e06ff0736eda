"""The tools of an agent that stands for one of another make, by the protocol that it speaks."""

from pathlib import Path
from typing import Any, NamedTuple

from cadre.adapters.remote_agent_tools import RemoteTasks, make_tools
from cadre.errors import SetupError
from cadre.settings import read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.decorator import Tool


class _Make(NamedTuple):
    """The protocol of agents of one make."""

    protocol: str
    """Also the name of the extra that brings what the protocol needs."""
    timeout_seconds: float
    words: str = ""
    package: str = ""


_A2A = _Make("a2a", 300.0)
_ACP = _Make("acp", 120.0, "the Agent Client Protocol", "agent-client-protocol")
_SYNADIA = _Make("synadia", 120.0, "Synadia's agent protocol", "synadia-ai-agents")


def tools_of(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[Tool[..., Any]]:
    """Return its tools; paths in its file are relative to the folder. Raises SetupError for what is not there, if they
    are to be served."""
    section = spec.section(RemoteSpec) or RemoteSpec()
    make = _ACP if section.program is not None else _SYNADIA if section.nats is not None else _A2A
    try:
        tasks = _tasks(spec, section, folder) if to_serve else None
    except ModuleNotFoundError as error:
        if not make.package:
            raise
        raise SetupError(
            f"{spec.name}: {make.words} needs the package {make.package}, which is not installed:"
            f" pip install 'cadre-agents[{make.protocol}]'"
        ) from error
    return make_tools(spec.name, make.protocol, tasks, make.timeout_seconds)


def _tasks(spec: AgentSpec, section: RemoteSpec, folder: Path) -> RemoteTasks:
    """Return its tasks, with all that they need there."""
    if section.program is not None:
        from cadre.adapters.acp.member import Member

        member = Member(spec, section.program, folder)
        member.check()
        return member
    if section.nats is not None:
        from cadre.adapters.synadia.link import Link
        from cadre.adapters.synadia.prompts import PromptedTasks

        link = Link(spec.name, section.nats, folder)
        link.check()
        return PromptedTasks(spec, section, link, read_settings().prefix)
    from cadre.adapters.a2a.client import A2ATasks, RemoteClient

    client = RemoteClient(spec.name, section, folder)
    client.check()
    return A2ATasks(spec.name, client)
