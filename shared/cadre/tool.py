"""The public facade for authors of tools: `tool`, and the types that a tool takes and returns."""

from __future__ import annotations

from cadre.tools.context import CancelSignal, ToolContext
from cadre.tools.decorator import InvalidArguments, Tool, tool
from cadre.tools.files import File

__all__ = ["CancelSignal", "File", "InvalidArguments", "Tool", "ToolContext", "tool"]
