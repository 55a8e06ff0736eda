"""The tables of tools that come with Cadre, from the tools themselves."""

import re
from importlib import import_module
from typing import Any

from cadre.tool import Tool


def table(module: str) -> str:
    """Return the table of a module's tools."""
    tools = [value for value in vars(import_module(module)).values() if isinstance(value, Tool)]
    rows = [f"| `{_signature(tool)}` | {_sentence(tool)} |" for tool in sorted(tools, key=lambda one: one.name)]
    return "\n".join(["| tool | what it does |", "|---|---|", *rows])


def _signature(tool: Tool[..., Any]) -> str:
    properties: dict[str, dict[str, Any]] = tool.input_schema["properties"]
    required = tool.input_schema.get("required", [])
    words = [name if name in required else f"{name}={one.get('default')!r}" for name, one in properties.items()]
    return f"{tool.name}({', '.join(words)})"


def _sentence(tool: Tool[..., Any]) -> str:
    first = " ".join(tool.description.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", first)[0]
