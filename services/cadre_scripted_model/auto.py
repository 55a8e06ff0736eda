"""The automatic reply: it calls every tool once, and then answers with what they returned."""

import json
from typing import Any

from cadre.tools.example_values import example
from cadre_scripted_model import NOT_AN_AI
from cadre_scripted_model.reply import CallReply, Reply
from cadre_scripted_model.request import RequestView

FINAL_ANSWER = "final_answer"
"""A tool of this name ends the conversation, so it is called after all others."""


def auto_reply(view: RequestView) -> Reply:
    """Returns the reply to a request that no rule matches."""
    calls = [CallReply(name=name, arguments=_arguments(name, view)) for name in _due(view)]
    if calls:
        return Reply(tool_calls=calls if view.parallel else calls[:1])
    if view.schema is not None:
        value = example(view.schema) if view.schema else {"answer": _summary(view)}
        return Reply(content=json.dumps(value, ensure_ascii=False))
    return Reply(content=_summary(view))


def _due(view: RequestView) -> list[str]:
    """Returns the names of the tools to call now."""
    choice = view.tool_choice
    if choice == "none" or not view.tools:
        return []
    if choice in view.tools:
        return [choice]
    due = [name for name in view.tools if name not in view.called and name != FINAL_ANSWER]
    if not due and FINAL_ANSWER in view.tools:
        return [FINAL_ANSWER]
    # An endpoint that is told "required" must call something, even for the second time.
    return due or (view.tools[:1] if choice == "required" else [])


def _arguments(name: str, view: RequestView) -> dict[str, Any]:
    schema = view.offered[name]
    arguments = example({"type": "object", **schema})
    if name == FINAL_ANSWER:
        for key, shape in (schema.get("properties") or {}).items():
            if isinstance(shape, dict) and shape.get("type", "string") == "string" and _is_free(shape):
                return {**arguments, key: _summary(view)}
    return arguments if isinstance(arguments, dict) else {}


def _is_free(shape: dict[str, Any]) -> bool:
    narrow = ("enum", "const", "pattern", "format", "maxLength", "$ref", "anyOf", "oneOf", "allOf")
    return not any(key in shape for key in narrow)


def _summary(view: RequestView) -> str:
    returned = [f"{name}: {_cut(text)}" for name, texts in view.results.items() for text in texts]
    results = "; ".join(returned) if returned else "no tool was called"
    return f"[{NOT_AN_AI}] Asked: {_cut(view.first)} | Tools returned: {results}"


def _cut(text: str, limit: int = 200) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
