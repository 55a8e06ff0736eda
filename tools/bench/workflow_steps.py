"""The cost of a workflow's step that asks no model, compared with a step of a model that calls the same tool.

Both agents are served by this process and take turns; the tool runs in a real executor process. CPU is this process's.
"""

import time
from statistics import median
from typing import Any

import msgspec

from bench.deployment import Deployment, deployment
from bench.paced import STEPS, PacedModel
from bench.steps import executor
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections

FLOW: dict[str, Any] = {
    "start": "look",
    "steps": {
        "look": {
            "tool": {"name": "lookup", "arguments": {"key": "number {{ visits.look }}"}},
            "when": [{"if": f"visits.look < {STEPS}", "next": "look"}],
            "next": "done",
        },
        "done": {"end": "all done"},
    },
}


async def measure(rounds: int) -> dict[str, Any]:
    """`rounds` of one run of each agent."""
    common: dict[str, Any] = {"tools": ["lookup"], "limits": Limits(max_steps=STEPS + 5)}
    section = msgspec.convert(FLOW, WorkflowSpec)
    async with deployment() as here, executor(here):
        await here.serve(AgentSpec(name="caller", description="Looks things up.", **common), PacedModel())
        flow = AgentSpec(name="flow", description="The same.", kind="workflow", **sections(section), **common)
        await here.serve(flow, PacedModel())
        await here.offered("lookup")
        await _cost(here, "caller")
        await _cost(here, "flow")
        turns = [(await _cost(here, "caller"), await _cost(here, "flow")) for _ in range(rounds)]
    return {
        "call_step_cpu_ms": median(call for call, _ in turns),
        "workflow_step_cpu_ms": median(step for _, step in turns),
        "workflow_step_ratio": median(step / call for call, step in turns),
    }


async def _cost(here: Deployment, agent: str) -> float:
    """CPU milliseconds per step of one run."""
    before = time.process_time()
    await here.run(here.task(agent, "Look it all up."))
    return (time.process_time() - before) * 1e3 / STEPS
