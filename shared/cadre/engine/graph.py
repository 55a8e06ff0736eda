"""Draw an agent as a Mermaid flowchart: its model, its tools and members, and what leads to an answer."""

from collections.abc import Iterable, Iterator

from cadre.spec.agent import AgentSpec

_LONGEST_LABEL = 40
MODEL = "model"
"""The node that asks the agent's model."""


def agent_graph(spec: AgentSpec, doing: str, before: Iterable[str] | None = None, calls: str = MODEL) -> Iterator[str]:
    """The lines of the flowchart of an agent whose model decides what is done next.

    `doing` says what the model is asked for, `before` are lines in the place of the arrow from the task, and `calls` is
    the node that its calls are made from.
    """
    yield "flowchart TD"
    yield from before if before is not None else [f"    task([task]) --> {MODEL}"]
    yield f'    {MODEL}["{label(spec.name)}<br/>{label(doing)}"]'
    for index, tool in enumerate(spec.tools):
        yield f'    {calls} <--> tool_{index}[/"{label(tool)}"/]'
    for index, member in enumerate(spec.team):
        yield f'    {calls} <--> member_{index}(["{label(str(member))}"])'
    judged = [*(["output_schema"] if spec.output_schema is not None else []), *map(label, spec.checks)]
    if not judged:
        yield f"    {MODEL} --> answer([answer])"
        return
    yield f'    {MODEL} --> checks{{"{"<br/>".join(judged)}"}}'
    yield "    checks --> answer([answer])"
    yield f'    checks -.->|"does not fit"| {MODEL}'


def goal_nodes(goals: Iterable[str], to: str) -> Iterator[str]:
    """Nodes of what an agent is to reach, and of its task, which is one more goal."""
    yield f"    task([task]) --> {to}"
    for index, goal in enumerate(goals):
        yield f'    goal_{index}>"{label(goal)}"] --> {to}'


def label(text: str) -> str:
    """The text as it may stand in quotes, cut to what a node or an arrow has room for."""
    short = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return short.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
