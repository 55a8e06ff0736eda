"""The prompts of one agent kind: all text of Cadre's own that a model reads is rendered here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cadre.errors import PromptError
from cadre.prompting.prompt_file import (
    SHORT,
    compile_texts,
    contracts,
    kind_of,
    locate,
    read_texts,
    shipped_files,
    shipped_texts,
)
from cadre.prompting.python_types import named_in_code
from cadre.prompting.tool_text import to_code_prompt, to_json, to_tool_calling_prompt
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import SHORT_PROMPTS, AgentSpec
from cadre.spec.kinds import DEFAULT, facts_of

__all__ = [
    "NO_TERMS",
    "Prompts",
    "kind_for",
    "prompts_for",
    "shipped_for",
    "to_code_prompt",
    "to_tool_calling_prompt",
]

NO_TERMS: Mapping[str, Any] = {"calls": "native"}
"""The values of the variables of agent kinds where no agent says otherwise."""

_SYSTEMS_KEPT = 8


def prompts_for(spec: AgentSpec) -> Prompts:
    """The agent's own prompt file, or the shipped one of its kind. Raises PromptError."""
    kind = kind_for(spec)
    return Prompts.load(shipped_for(spec) or str(spec.prompts), kind)


def shipped_for(spec: AgentSpec) -> str | None:
    """The name of the shipped file that the agent's prompts stand in; None for the agent's own file."""
    kind = kind_for(spec)
    if spec.prompts is None:
        return kind
    if spec.prompts != SHORT_PROMPTS:
        return None
    return f"{kind}{SHORT}" if shipped_files()[kind].has_short else kind


def kind_for(spec: AgentSpec) -> str:
    """The name of the prompt file that the agent's kind ships for it."""
    return facts_of(spec).prompt_file or spec.kind


class PromptTexts(msgspec.Struct, frozen=True):
    """The templates of a prompt file as they are kept for the runs that began with them."""

    kind: str
    """Name of the prompts' kind: what the templates may use."""
    templates: dict[str, str]


class Prompts:
    """Compiled templates. Build it with `Prompts.load`; rendering does no I/O and cannot miss a variable."""

    def __init__(self, where: str, texts: Mapping[str, str], kind: str = DEFAULT) -> None:
        """Compile the texts, which stand in `where`. Raises PromptError."""
        self.kind = kind
        self.encoded = msgspec.json.encode(PromptTexts(kind, dict(sorted(texts.items()))))
        """The kind and all texts, as `Prompts.decode` takes them."""
        self.ref = f"blob:{hashlib.sha256(self.encoded).hexdigest()}"
        """The name of `encoded` as a blob."""
        self.texts = texts
        """The templates by key, as they are written."""
        self._templates = compile_texts(where, texts, kind)
        self._systems: list[tuple[object, str]] = []

    @classmethod
    def load(cls, kind_or_path: str | Path, kind: str | None = None) -> Prompts:
        """Read a shipped file (`tool_calling`, `code_short` …), or your own by its path.

        A file of your own is checked against what the given kind of prompts needs; the default kind is `tool_calling`.
        Raises PromptError naming the file, the key and the variable that is wrong.
        """
        source = locate(kind_or_path)
        kind = kind or kind_of(kind_or_path)
        return cls(str(source), read_texts(source, kind), kind)

    @classmethod
    def decode(cls, where: str, encoded: bytes) -> Prompts:
        """The prompts that were `encoded`, by this version or another one. Raises PromptError."""
        try:
            kept = msgspec.json.decode(encoded, type=PromptTexts)
        except msgspec.DecodeError as error:
            raise PromptError(f"{where}: {error}") from error
        if kept.kind not in contracts():
            raise PromptError(f"{where}: prompts of the unknown kind {kept.kind!r}")
        # Another release may know other templates.
        return cls(where, shipped_texts(kept.kind) | kept.templates, kept.kind)

    def system(
        self,
        tools: Sequence[ToolCard],
        members: Sequence[AgentCard],
        instructions: str,
        terms: Mapping[str, Any] = NO_TERMS,
        output_schema: dict[str, Any] | None = None,
    ) -> str:
        """The system prompt. It is rendered once per toolset, and shared by all runs of the agent with that toolset.

        `terms` are the values of the variables that the agent's kind adds (`Facts.terms`). Answers
        must fit `output_schema`.
        """
        key = ([*tools], [*members], instructions, terms, output_schema)
        for known, text in self._systems:
            if known == key:
                return text
        text = self._render(
            "system_prompt",
            **self._offered(tools, members),
            custom_instructions=instructions.strip(),
            output_schema=to_json(output_schema) if output_schema is not None else "",
            **{**NO_TERMS, **terms},
        )
        self._systems = [(key, text), *self._systems[: _SYSTEMS_KEPT - 1]]
        return text

    def initial_plan(self, task: str, tools: Sequence[ToolCard], members: Sequence[AgentCard]) -> str:
        """The request for the first plan."""
        return self._render("planning.initial_plan", task=task, **self._offered(tools, members))

    def update_plan_pre(self, task: str) -> str:
        """The message before the history when a plan must be updated."""
        return self._render("planning.update_plan_pre_messages", task=task)

    def update_plan_post(
        self, task: str, tools: Sequence[ToolCard], members: Sequence[AgentCard], remaining_steps: int
    ) -> str:
        """The request for an updated plan, behind the history."""
        return self._render(
            "planning.update_plan_post_messages",
            task=task,
            **self._offered(tools, members),
            remaining_steps=remaining_steps,
        )

    def _offered(self, tools: Sequence[ToolCard], members: Sequence[AgentCard]) -> dict[str, Any]:
        """Tools and members as variables of a template, under their names in code for kinds that write code."""
        if not shipped_files()[self.kind].names_in_code:
            return {"tools": tools, "managed_agents": members}
        named = [msgspec.structs.replace(card, name=name) for name, card in named_in_code([*tools, *members]).items()]
        return {
            "tools": [card for card in named if isinstance(card, ToolCard)],
            "managed_agents": [card for card in named if isinstance(card, AgentCard)],
        }

    # --- delegation

    def managed_task(self, name: str, task: str, output_schema: dict[str, Any] | None = None) -> str:
        """The task as the member `name` reads it, whose answer must fit `output_schema`."""
        form = to_json(output_schema) if output_schema is not None else ""
        return self._render("managed_agent.task", name=name, task=task, output_schema=form)

    def managed_report(self, name: str, final_answer: object) -> str:
        """The member's answer, text or any JSON value, as its manager reads it."""
        text = final_answer if isinstance(final_answer, str) else to_json(final_answer)
        return self._render("managed_agent.report", name=name, final_answer=text)

    def managed_summary(self, name: str, messages: Sequence[str]) -> str:
        """Return what the member did, message by message, as its manager reads it behind the report."""
        return self._render("managed_agent.summary", name=name, messages=messages)

    # --- the answer after the last step

    def final_pre(self) -> str:
        """The message before the history when the steps are used up."""
        return self._render("final_answer.pre_messages")

    def final_post(self, task: str, output_schema: dict[str, Any] | None = None) -> str:
        """The last question; with `output_schema` the answer must be JSON that fits it."""
        form = to_json(output_schema) if output_schema is not None else ""
        return self._render("final_answer.post_messages", task=task, output_schema=form)

    # --- memory

    def new_task(self, task: str) -> str:
        """The task as it stands in the history."""
        return self._render("memory.new_task", task=task)

    def plan(self, plan: str, first: bool) -> str:
        """A plan as its own author reads it again."""
        return self._render("memory.plan" if first else "memory.updated_plan", plan=plan)

    def proceed(self) -> str:
        """The request to carry a plan out, behind it."""
        return self._render("memory.proceed")

    def recalled(self, memories: Sequence[object]) -> str:
        """Return what the memory service found, as something to weigh and not to obey."""
        return self._render("memory.recalled", memories=memories)

    def summary(self, text: str) -> str:
        """A summary of earlier steps, in their place."""
        return self._render("memory.summary", summary=text)

    def agent_summary(self, task: str, past: str, characters: int) -> str:
        """The request to summarize the steps in `past` in so many characters."""
        return self._render("memory.agent_summary", task=task, past_messages=past, char_limit=characters)

    def agent_recursive_summary(self, task: str, before: str, past: str, characters: int) -> str:
        """The request to bring the summary `before` up to date with the steps in `past`."""
        return self._render(
            "memory.agent_recursive_summary",
            task=task,
            previous_ltm_summary=before,
            past_messages=past,
            char_limit=characters,
        )

    def error(self, message: str) -> str:
        """An error of a step or call, with advice, as the model reads it."""
        return self._render("memory.error", error=message)

    def rendered(self, key: str, **values: object) -> str:
        """A template that the agent's kind adds (`PromptFile.templates`)."""
        return self._render(key, **values)

    def _render(self, key: str, **values: object) -> str:
        return self._templates[key].render(values).strip()
