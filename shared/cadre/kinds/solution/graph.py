"""An agent of kind `solution` as a Mermaid diagram: proposal, agreement, calls."""

from collections.abc import Iterator

from cadre.engine.graph import MODEL, agent_graph, label
from cadre.kinds.solution.section import solution_of
from cadre.spec.agent import AgentSpec
from cadre.spec.policy import NEVER


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    section = solution_of(spec)
    calls = "calls"
    yield from agent_graph(spec, "proposes calls and an output", calls=calls)
    if section.approve == NEVER:
        yield f'    {MODEL} --> {calls}["calls, side by side"]'
    else:
        yield f'    {MODEL} --> review{{{{"a person agrees<br/>{label(section.approve)}"}}}}'
        yield f'    review -->|"approve, correct, add, drop"| {calls}["calls, side by side"]'
        yield f'    review -.->|"reject"| {MODEL}'
        yield f'    review -.->|"expired: {section.at_expiry}"| {_EXPIRED[section.at_expiry]}'
    yield f'    {calls} -->|"results"| {MODEL}'
    for index, name in enumerate(section.implicit):
        yield f'    {MODEL} <-.-> implicit_{index}>"{label(name)}"]'


_EXPIRED = {"reject": MODEL, "approve": "calls", "end": "stop([end])"}
