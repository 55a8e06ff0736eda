"""Requests that hold each answer to one call by a JSON schema (`calls: schema`), read and answered as native calls are.

So the same script plays for an agent whichever form its calls have.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from cadre_scripted_model.reply import Reply

_OBSERVED = "Observation:\n"


def callable_by(schema: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Returns the schema of the arguments of each function that may be called; {} for a schema of anything else."""
    held = ((schema or {}).get("properties") or {}).get("function") or {}
    definitions = {"$defs": (schema or {}).get("$defs") or {}}
    found: dict[str, dict[str, Any]] = {}
    for branch in held.get("anyOf") or [held]:
        properties = branch.get("properties") or {}
        name = properties.get("name") or {}
        for one in name.get("enum") or [name.get("const")]:
            if isinstance(one, str) and isinstance(properties.get("arguments"), dict):
                found[one] = {**properties["arguments"], **definitions}
    return found


def as_native(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the messages with calls that were written as JSON, and what came of them, in their native form."""
    found: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        before, content = found[-1] if found else {}, message.get("content")
        if message["role"] == "assistant" and (name := _called(content)):
            call = {"id": f"text_{place}", "function": {"name": name}}
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif before.get("tool_calls") and isinstance(content, str) and content.startswith(_OBSERVED):
            [call] = before["tool_calls"]
            text = content.removeprefix(_OBSERVED).removeprefix(f"{call['function']['name']}: ")
            found.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        else:
            found.append(message)
    return found


def as_text(reply: Reply) -> Reply:
    """Returns the reply with its first call written as the schema wants it."""
    call = reply.tool_calls[0]
    arguments = (
        call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    )
    text = f'{{"function": {{"name": {json.dumps(call.name)}, "arguments": {arguments}}}}}'
    return msgspec.structs.replace(reply, content=text, tool_calls=[])


def _called(content: object) -> str:
    """The name of the function that a text calls; "" when it is no call."""
    try:
        value = json.loads(content) if isinstance(content, str) else None
    except ValueError:
        return ""
    function = value.get("function") if isinstance(value, dict) else None
    return str(function.get("name") or "") if isinstance(function, dict) else ""
