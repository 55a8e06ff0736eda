"""An agent of kind `goals` as a Mermaid diagram."""

from collections.abc import Iterator

from cadre.engine.graph import MODEL, agent_graph, goal_nodes
from cadre.kinds.goals.records import goals_of
from cadre.spec.agent import AgentSpec


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: goals, and the iterations towards them."""
    section = goals_of(spec)
    yield from agent_graph(spec, "thinks, and calls one tool", goal_nodes(section.goals, MODEL))
    if section.think:
        yield f'    {MODEL} <--> think(["think"])'
