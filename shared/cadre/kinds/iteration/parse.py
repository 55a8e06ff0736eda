"""A model's answer read as thoughts and one tool."""

from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.json_text import ReadingError, is_closed, read_arguments, read_object
from cadre.engine.calls.call_schema import object_of
from cadre.engine.calls.calls_in_text import ARGUMENT_KEYS, Schema, SchemaOf, read_call
from cadre.kinds.iteration.records import FINISH

THINK = "think"
"""The tool that asks the model itself, with a prompt of its own."""

THINK_PARAMETERS = object_of(task_description={"type": "string"})
_OWN = {FINISH: {"type": "object", "properties": {"response": {}}}, THINK: THINK_PARAMETERS}

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


def takes_own(name: str) -> Schema | None:
    """What the tools of the kinds themselves take."""
    return _OWN.get(plain_name(name))


def read_iteration(content: str, schema_of: SchemaOf = takes_own) -> Iteration:
    """Reads an answer. Raises ReadingError with what is wrong, and the form wanted."""
    try:
        return _iteration(read_object(content, "tool", "thoughts", "name", "function"), schema_of)
    except ReadingError as error:
        raise ReadingError(
            f"{error.sentence} Answer with JSON of this form and nothing else: {FORM}"
        ) from error


def plain_name(name: str) -> str:
    """A tool's name as names are compared: without case and blanks."""
    return "".join(name.split()).casefold()


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _iteration(found: dict[str, Any], schema_of: SchemaOf) -> Iteration:
    said = {key: value for key, value in found.items() if key != "thoughts"}
    if isinstance(several := said.get("tool"), list):
        if len(several) != 1:
            raise ReadingError(f"Your answer names {len(several)} tools: name one, and read what it returns")
        said["tool"] = several[0]
    tool = next((said[key] for key in ("tool", "function") if isinstance(said.get(key), dict)), said)
    name = next((tool[key] for key in ("name", "tool") if isinstance(tool.get(key), str)), None)
    if name is None or (not name.strip() and "tool" not in found):
        raise ReadingError("Your answer names no tool.")
    # These need no arguments, and an empty name ends the work as well.
    own: dict[str, Any] = {"name": name if name.strip() else FINISH}
    if (takes_own(name) or not name.strip()) and tool.keys().isdisjoint(ARGUMENT_KEYS):
        own["args"] = {}
    call = read_call({**tool, **own}, schema_of)
    return Iteration(_thoughts(found.get("thoughts")), name.strip() and call.name, read_arguments(call))


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
