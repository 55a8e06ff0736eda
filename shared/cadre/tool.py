"""The public facade for authors of tools: `tool`, the types that a tool takes and returns, and foreign tools."""

from typing import Any

from cadre.options import missing_name
from cadre.tools.context import CancelSignal, ToolContext
from cadre.tools.decorator import InvalidArguments, Tool, ToolError, tool
from cadre.tools.files import File
from cadre.tools.foreign import from_langchain, from_smolagents

__all__ = [
    "CancelSignal",
    "File",
    "InvalidArguments",
    "Tool",
    "ToolContext",
    "ToolError",
    "from_langchain",
    "from_smolagents",
    "tool",
]

_HINTS = {
    "BaseTool": "tool, on a function",
    "Context": "ToolContext",
    "FunctionTool": "tool",
    "ModelRetry": "ToolError",
    "RunContext": "ToolContext",
    "function_tool": "tool",
}
"""Names of other libraries, each with ours."""


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, __all__, _HINTS)
