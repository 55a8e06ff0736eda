"""What a model was sent, as text: its options, what it was offered, then each message by its role."""

from collections.abc import Iterator
from textwrap import indent
from typing import Any

from cadre.cli.terminal.answer import as_text

_SHOWN_APART = ("messages", "input", "tools")


def prompt_lines(request: dict[str, Any]) -> Iterator[str]:
    """Lines and blocks of the answer to GET /v1/runs/ID/steps/N/request."""
    body = request["body"]
    yield f"request  step {request['step']}, {request['purpose']}, try {request['attempt']}"
    yield "calls    " + ", ".join(f"{call['purpose']} {call['attempt']}" for call in request["calls"])
    for name, value in body.items():
        if name not in _SHOWN_APART:
            yield f"{name:8} {as_text(value)}"
    tools = [tool.get("function", tool) for tool in body.get("tools", [])]
    if tools:
        yield "tools    " + ", ".join(_signature(tool) for tool in tools)
    for message in body.get("messages", body.get("input", [])):
        yield f"\n{message.get('role') or message.get('type')}"
        yield indent("\n".join(_parts(message)), "  ")


def _signature(tool: dict[str, Any]) -> str:
    names = ", ".join(tool.get("parameters", {}).get("properties", {}))
    return f"{tool.get('name', tool.get('type'))}({names})"


def _parts(message: dict[str, Any]) -> Iterator[str]:
    """The text of a message, then whatever else it holds."""
    content = message.get("content")
    if isinstance(content, list):
        yield from (part["text"] if "text" in part else as_text(part) for part in content)
    elif content:
        yield str(content)
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "type") and value}
    if rest:
        yield as_text(rest)
