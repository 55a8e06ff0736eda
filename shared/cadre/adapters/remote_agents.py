"""The tools of an agent that stands for one of another make, by the protocol that it speaks."""

from pathlib import Path
from typing import Any

from cadre.spec.agent import AgentSpec
from cadre.tools.decorator import Tool


def tools_of(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[Tool[..., Any]]:
    """Its tools; paths in its file are relative to the folder. Raises SetupError for what is not there, if they are to
    be served."""
    if getattr(spec, spec.kind).program is not None:
        from cadre.adapters.acp import member_tools

        return member_tools.tools_of(spec, folder, to_serve=to_serve)
    if getattr(spec, spec.kind).nats is not None:
        from cadre.adapters.synadia import agent_tools

        return agent_tools.tools_of(spec, folder, to_serve=to_serve)
    from cadre.adapters.a2a import remote_tools

    return remote_tools.tools_of(spec, folder, to_serve=to_serve)
