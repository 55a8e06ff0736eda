"""A model's answer read as thoughts and one tool."""

from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.json_text import ReadingError, is_closed, read_arguments, read_object
from cadre.journal.events import RequestedCall

FINISH = "finish"
"""The tool that ends the work; so does an empty name."""

THINK = "think"
"""The tool that asks the model itself, with a prompt of its own."""

FORM = (
    '{"thoughts": {"text": …, "reasoning": …, "plan": …, "criticism": …, "speak": …},'
    ' "tool": {"name": …, "args": {…}}}'
)


class Iteration(NamedTuple):
    """What an answer says."""

    thoughts: dict[str, str]
    tool: str
    """As the model wrote it."""
    arguments: dict[str, Any]

    @property
    def is_end(self) -> bool:
        """The work is done."""
        return plain_name(self.tool) in ("", FINISH)

    @property
    def is_thinking(self) -> bool:
        return plain_name(self.tool) == THINK

    @property
    def question(self) -> str:
        """What is to be thought about."""
        return as_text(self.arguments.get("task_description") or next(iter(self.arguments.values()), ""))

    @property
    def response(self) -> Any:
        """What `finish` was given; without it, what the model thought."""
        if "response" in self.arguments:
            return self.arguments["response"]
        return self.thoughts.get("text") or self.thoughts.get("speak") or ""


def read_iteration(content: str) -> Iteration:
    """Reads an answer. Raises ReadingError with what is wrong, and the form wanted."""
    try:
        return _iteration(read_object(content, "tool", "thoughts", "name"))
    except ReadingError as error:
        raise ReadingError(f"{error} Answer with JSON of this form and nothing else: {FORM}") from error


def plain_name(name: str) -> str:
    """A tool's name as names are compared: without case and blanks."""
    return "".join(name.split()).casefold()


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _iteration(found: dict[str, Any]) -> Iteration:
    tool: Any = found.get("tool", found if "thoughts" not in found else None)
    if isinstance(tool, str):
        tool = {"name": tool, "args": found.get("args", found.get("arguments"))}
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise ReadingError("Your answer names no tool.")
    name: str = tool["name"]
    given = tool.get("args", tool.get("arguments"))
    arguments = read_arguments(RequestedCall(name, _arguments(name, given)))
    return Iteration(_thoughts(found.get("thoughts")), name, arguments)


def _arguments(name: str, given: Any) -> str | dict[str, Any]:
    if given in (None, "", []):
        return {}
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise ReadingError(f"The args of {name!r} must be a JSON object.")
    return given


def _thoughts(given: Any) -> dict[str, str]:
    if isinstance(given, dict):
        return {str(key): as_text(value) for key, value in given.items() if value not in (None, "")}
    return {"text": as_text(given)} if given else {}


def is_whole(content: str) -> bool:
    """Whether an answer that was cut at the limit of tokens is whole in what it asks for."""
    try:
        read_iteration(content)
    except ReadingError:
        return False
    return is_closed(content)
