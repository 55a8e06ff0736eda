"""The prompts of one agent kind: everything that Cadre itself says to a model comes from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Template

from cadre.messages import AgentCard, ToolCard
from cadre.prompt_files import locate, read_templates
from cadre.tool_texts import to_json, to_tool_calling_prompt

__all__ = ["Prompts", "to_tool_calling_prompt"]

_SYSTEMS_KEPT = 8


class Prompts:
    """Compiled templates. Build it with `Prompts.load`; rendering does no I/O and cannot miss a variable."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = templates
        self._systems: list[tuple[tuple[list[ToolCard], list[AgentCard], str], str]] = []

    @classmethod
    def load(cls, kind_or_path: str | Path) -> Prompts:
        """Reads the file shipped for an agent kind (`tool_calling`), or a file of one's own by its path.

        Raises PromptError naming the file, the key and the variable that is wrong.
        """
        return cls(read_templates(locate(kind_or_path)))

    def system(self, tools: Sequence[ToolCard], members: Sequence[AgentCard], instructions: str) -> str:
        """Rendered once per offer: an agent's runs share it until somebody comes or goes."""
        key = ([*tools], [*members], instructions)
        for known, text in self._systems:
            if known == key:
                return text
        text = self._render(
            "system_prompt", tools=tools, managed_agents=members, custom_instructions=instructions.strip()
        )
        self._systems = [(key, text), *self._systems[: _SYSTEMS_KEPT - 1]]
        return text

    def initial_plan(self, task: str, tools: Sequence[ToolCard], members: Sequence[AgentCard]) -> str:
        return self._render("planning.initial_plan", task=task, tools=tools, managed_agents=members)

    def update_plan_pre(self, task: str) -> str:
        return self._render("planning.update_plan_pre_messages", task=task)

    def update_plan_post(
        self, task: str, tools: Sequence[ToolCard], members: Sequence[AgentCard], remaining_steps: int
    ) -> str:
        return self._render(
            "planning.update_plan_post_messages",
            task=task,
            tools=tools,
            managed_agents=members,
            remaining_steps=remaining_steps,
        )

    # --- delegation

    def managed_task(self, name: str, task: str) -> str:
        """The task as the member `name` reads it."""
        return self._render("managed_agent.task", name=name, task=task)

    def managed_report(self, name: str, final_answer: object) -> str:
        """The member's answer, text or any JSON value, as its manager reads it."""
        text = final_answer if isinstance(final_answer, str) else to_json(final_answer)
        return self._render("managed_agent.report", name=name, final_answer=text)

    # --- the answer after the last step

    def final_pre(self) -> str:
        return self._render("final_answer.pre_messages")

    def final_post(self, task: str) -> str:
        return self._render("final_answer.post_messages", task=task)

    # --- memory

    def new_task(self, task: str) -> str:
        return self._render("memory.new_task", task=task)

    def plan(self, plan: str, first: bool) -> str:
        """A plan as its own author reads it again."""
        return self._render("memory.plan" if first else "memory.updated_plan", plan=plan)

    def proceed(self) -> str:
        return self._render("memory.proceed")

    def error(self, message: str) -> str:
        return self._render("memory.error", error=message)

    def _render(self, key: str, **values: object) -> str:
        return self._templates[key].render(values).strip()
