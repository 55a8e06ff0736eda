"""What a member did, told to its manager behind the report: its memory in summary mode, each message cut."""

import msgspec

from cadre.engine.chat import as_text, in_summary, messages_of
from cadre.engine.context.observation import clip, observation_of
from cadre.journal.run import Run
from cadre.journal.steps import AnswerStep, Step, TaskStep
from cadre.prompting.prompts import Prompts

_LONGEST = 2_000
"""Characters of a message: a manager reads a whole report at once, and may have several members."""


def work_of(run: Run, prompts: Prompts) -> list[str]:
    """Texts of the messages, the task first; the answer is in the report."""
    messages = [
        message
        for step in run.steps
        if not isinstance(step, AnswerStep)
        for message in in_summary(step, messages_of(_plain(step), run, prompts))
    ]
    return [clip(_text(message["content"]), _LONGEST) for message in as_text(messages)]


def _plain(step: Step) -> Step:
    """A manager knows how a task is handed to a member."""
    return msgspec.structs.replace(step, delegated=False) if isinstance(step, TaskStep) else step


def _text(content: object) -> str:
    """Without images, which a report cannot carry."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return observation_of(content)
