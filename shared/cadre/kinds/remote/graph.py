"""An agent that stands for a remote one, as a Mermaid flowchart."""

from collections.abc import Iterator

from cadre.engine.graph import label
from cadre.kinds.remote.records import remote_of
from cadre.spec.agent import AgentSpec


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: the task goes to the remote agent, its answer comes back."""
    section = remote_of(spec)
    what = section.card or section.url or (section.program.command[0] if section.program else "A2A")
    if (nats := section.nats) is not None:
        what = f"{nats.agent}/{nats.owner}/{nats.session}"
    yield "flowchart TD"
    yield "    task([task]) --> remote"
    yield f'    remote[["{label(spec.name)}<br/>{label(what)}"]]'
    yield "    remote --> answer([answer])"
