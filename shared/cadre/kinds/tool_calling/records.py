"""Declare the kind `tool_calling`: it keeps no state."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from cadre.kinds.plan.section import PLAN_LISTS, PLAN_TEMPLATES, decided_by, task_prompt
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile

STEPWISE: Mapping[str, str] = {
    "act": "thinking",
    "plan": "planning",
    "final": "writing the final answer",
}


def prompt_terms(spec: Any) -> dict[str, Any]:
    """Return how the model is to write its calls."""
    return {"calls": spec.model.calls}


def capabilities(spec: Any) -> frozenset[str]:
    """Tools where calls are native, a schema where they or the last answer are held to one."""
    form = spec.model.calls
    if form == "native":
        return frozenset({"tools"} if spec.output_schema is None else {"tools", "json_schema"})
    return frozenset({"json_schema"} if form == "schema" else ())


DECLARATION = KindDeclaration(
    name="tool_calling",
    behavior={1: "cadre.kinds.tool_calling.kind:TOOL_CALLING"},
    purposes=STEPWISE,
    # A model that calls tools is offered them, and its team, through its API as well.
    prompts={
        "tool_calling": PromptFile(
            must="custom_instructions",
            may="tools managed_agents output_schema calls",
            templates=PLAN_TEMPLATES,
            lists=PLAN_LISTS,
            shares="plan",
        )
    },
    facts=lambda spec: Facts(
        decided_by(spec),
        capabilities=capabilities(spec),
        terms=partial(prompt_terms, spec),
        task=task_prompt(spec),
    ),
)
