"""A task that both systems get, and what the model answers: the same to both."""

import json
from dataclasses import dataclass, field
from typing import Any

Reply = dict[str, Any]

SMOLAGENTS, CADRE = "smolagents", "cadre"
"""The systems, by the names of the models that they ask."""


@dataclass(frozen=True)
class Case:
    name: str
    agent: str
    """File in `team/`."""
    ask: str
    replies: list[Reply]
    """The model's answers, request by request."""
    answer: object
    """The required end of the run in both systems, as `compat.smolagents_values` writes it."""
    member: list[Reply] = field(default_factory=list)
    """The same for the member of the team."""
    other: list[Reply] = field(default_factory=list)
    """The same for a second member."""
    state: str = "success"
    then: str = ""
    """A second task, for which the agent goes on with its memory (`reset=False`)."""
    interrupts: int = 0
    """It is interrupted behind so many steps; with Cadre, while a tool called `hold` is at work after them."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the task: max_steps, inputs, images."""

    @property
    def mark(self) -> str:
        """Stands in the task, so that a request shows which case it belongs to."""
        return f"[{self.name}]"

    @property
    def scripts(self) -> list[tuple[str, list[Reply]]]:
        """Each agent's replies, by the mark that stands in its task."""
        scripts = [
            (self.mark, self.replies),
            (member_mark(self.name), self.member),
            (other_mark(self.name), self.other),
        ]
        return [(mark, replies) for mark, replies in scripts if replies]

    @property
    def task(self) -> str:
        return f"{self.mark} {self.ask}"


def member_mark(name: str) -> str:
    return f"[{name}: member]"


def other_mark(name: str) -> str:
    return f"[{name}: other]"


def code(block: str) -> Reply:
    return {"content": f"Thought: I go on.\n<code>\n{block}\n</code>"}


def thought_and_code(thought: str, block: str) -> Reply:
    return {"content": json.dumps({"thought": thought, "code": block})}


def text(words: str) -> Reply:
    return {"content": words}


def calls(*asked: tuple[str, dict[str, Any]], content: str | None = None) -> Reply:
    made = {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in asked]}
    return made if content is None else {"content": content, **made}


def answer(value: object) -> Reply:
    return calls(("final_answer", {"answer": value}))
