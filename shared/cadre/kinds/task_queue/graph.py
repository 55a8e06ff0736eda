"""An agent of kind `task_queue` as a Mermaid diagram."""

from collections.abc import Iterator

from cadre.engine.graph import MODEL, agent_graph, goal_nodes
from cadre.kinds.task_queue.records import queue_of
from cadre.spec.agent import AgentSpec


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: goals, the queue that is made of them, and how a task is done."""
    section = queue_of(spec)
    tasks = "tasks"
    yield from agent_graph(spec, "concludes", goal_nodes(section.goals, "initialize"), calls=tasks)
    yield f'    initialize["initialize<br/>at most {section.initial} tasks"] --> queue'
    yield f'    queue[("queue<br/>at most {section.most} tasks")]'
    yield f'    queue -->|"first"| {tasks}["does a task<br/>at most {section.tries} tries"]'
    after = [
        name for name, wanted in (("create", section.create), ("prioritize", section.prioritize)) if wanted
    ]
    for node in after:
        yield f'    {node}["{node}"]'
    yield f"    {' --> '.join([tasks, *after, 'queue'])}"
    yield f'    queue -->|"empty"| {MODEL}'
