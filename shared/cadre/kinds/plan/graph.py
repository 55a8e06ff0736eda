"""A plan as a Mermaid diagram: the steps that the agent's file gives, or how one is made."""

from collections.abc import Iterator

from cadre.kinds.plan.section import plan_of
from cadre.kinds.plan.steps import numbered
from cadre.spec.agent import AgentSpec

_LONGEST_LABEL = 40


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    section = plan_of(spec)
    steps = numbered(section.steps, section.most)
    first = "approve" if section.approve_plan else "steps"
    end = "conclude" if section.conclude else "result"
    yield "flowchart TD"
    if not steps:
        yield f'    start([start]) --> make["make_plan"] --> {first}'
        yield '    steps[["steps, side by side<br/>where they can"]]'
    elif section.approve_plan:
        yield "    start([start]) --> approve"
    if section.approve_plan:
        yield '    approve{{"a person agrees"}}'
        yield from ([] if steps else ["    approve --> steps"])
    for step in steps:
        yield f'    step_{step.step}["{step.step}. {step.action}<br/>{_label(step.task)}"]'
        for need in step.needs or []:
            yield f"    step_{need} --> step_{step.step}"
        if not step.needs:
            yield f"    {'approve' if section.approve_plan else 'start([start])'} --> step_{step.step}"
    needed = {need for step in steps for need in step.needs or []}
    for last in [f"step_{step.step}" for step in steps if step.step not in needed] or ["steps"]:
        yield f"    {last} --> {end}"
        if section.replans:
            yield f'    {last} -. "a step has failed" .-> replan["replan"]'
    yield f"    {end} --> stop([end])"


def _label(text: str) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LONGEST_LABEL else flat[: _LONGEST_LABEL - 1] + "…"
    return short.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
