"""Iterations as their model reads them again, and the messages around them."""

from typing import Any

from cadre.engine.chat import observed
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.tokens import fit
from cadre.engine.kind import Chat
from cadre.engine.model_request import ChatMessage
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep
from cadre.kinds.iteration.parse import THINK
from cadre.prompting.prompts import Prompts


def step_messages(step: ActionStep, prompts: Prompts) -> list[ChatMessage]:
    """The answer, and what its tool returned or what was wrong with it."""
    said = {"role": "assistant", "content": step.content or "(empty)"}
    found = [_result(call.name, observed(call, prompts), prompts) for call in step.asked]
    found += [prompts.error(step.error.message)] if step.error is not None else []
    if not found:
        return [said] if step.content else []
    return [said, user("\n\n".join(found))]


def thought_messages(thought: str, prompts: Prompts) -> list[ChatMessage]:
    """What came of `think`, behind the answer that called it."""
    return [user(_result(THINK, thought, prompts))]


def now_message(run: Run, chat: Chat) -> ChatMessage:
    """The current time, as of the journal's entry that the request belongs to."""
    at = run.model.at if run.model is not None else run.started_at
    return {"role": "system", "content": chat.rendered("iteration.time", now=at)}


def thinking_messages(run: Run, question: str, goals: list[str], chat: Chat) -> list[ChatMessage]:
    """The request for a thought: the goals, the question, and what was found last."""
    least = known_room(run) // 8
    found = next((text for step in reversed(run.steps) if (text := _found(step))), "")
    text = chat.rendered(
        "iteration.think",
        goals=[fit(goal, least) for goal in goals],
        question=fit(question, 2 * least),
        found=fit(found, 2 * least),
    )
    return [user(text)]


def user(text: str) -> ChatMessage:
    """A message of the user."""
    return {"role": "user", "content": text}


def _result(name: str, text: str, prompts: Prompts) -> str:
    return prompts.rendered("iteration.result", name=name, text=text)


def _found(step: Any) -> str:
    if not isinstance(step, ActionStep):
        return ""
    return "\n".join(f"{call.name}: {call.observation}" for call in step.asked if call.observation)
