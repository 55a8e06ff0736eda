"""A workflow as a Mermaid diagram."""

from collections.abc import Iterator

from cadre.engine.graph import label
from cadre.kinds.workflow.edges import all_edges, may_end
from cadre.kinds.workflow.section import ACTIONS, workflow_of
from cadre.spec.agent import AgentSpec

_DOTTED = ("on_error", "undo")


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: steps with what they do, and the ways between them."""
    workflow = workflow_of(spec)
    yield "flowchart TD"
    yield f"    start([start]) --> {_node(workflow.start)}"
    for name, step in workflow.steps.items():
        doing = next(key for key in ACTIONS if getattr(step, key) is not None)
        begin, end = _SHAPES.get(doing, ("[", "]"))
        yield f'    {_node(name)}{begin}"{name}<br/>{doing}"{end}'
    for name, step in workflow.steps.items():
        for edge in all_edges(step):
            arrow = "-.->" if edge.key in _DOTTED else "-->"
            word = f'|"{label(edge.label)}"| ' if edge.label else " "
            yield f"    {_node(name)} {arrow}{word}{_node(edge.target)}"
        if may_end(step):
            yield f"    {_node(name)} --> stop([end])"


_SHAPES = {"choose": ("{", "}"), "approve": ("{{", "}}"), "wait": ("([", "])"), "end": ("[[", "]]")}


def _node(name: str) -> str:
    return f"step_{name}"
