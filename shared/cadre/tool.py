"""The public facade for authors of tools: `tool`, the types that a tool takes and returns, and foreign tools."""

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
