"""What a model is asked when it is to summarize the earlier part of its run."""

from typing import Any

from cadre.engine.context.context_budget import MESSAGE, limit, summary_tokens
from cadre.engine.context.tokens import CHARACTERS, fit, tokens_of
from cadre.journal.run import Run
from cadre.prompting.prompts import Prompts

_TEMPLATE = 600
"""Tokens kept free for the words of the template around the texts."""


def summary_prompt(run: Run, past: list[dict[str, Any]], task: str, prompts: Prompts) -> str:
    """`past` holds the messages to be covered, in plain text; the request never outgrows the context either."""
    most = summary_tokens(run)
    free = limit(run) - most - _TEMPLATE
    task = fit(task, max(0, free // 8))
    before = fit(run.summary.text, most) if run.summary is not None else None
    free -= tokens_of(task) + (tokens_of(before) if before is not None else 0)
    text = fit("\n\n".join(f"{m['role']}:\n{_words(m['content'])}" for m in past), max(0, free - MESSAGE))
    if before is None:
        return prompts.agent_summary(task, text, most * CHARACTERS)
    return prompts.agent_recursive_summary(task, before, text, most * CHARACTERS)


def _words(content: Any) -> str:
    """The text of a message; images say nothing in a summary."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part.get("type") == "text")
