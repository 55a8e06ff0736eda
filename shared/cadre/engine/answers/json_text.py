"""JSON that a model wrote: read as it stands, and told to the model where it cannot be."""

from typing import Any

import msgspec

from cadre.journal.events import RequestedCall
from cadre.protocol.json_depth import MAX_LEVELS, nesting
from cadre.protocol.messages import ErrorInfo

UNREADABLE = (ValueError, RecursionError)
"""What decoding a model's JSON may raise: wrong syntax, half a surrogate pair, nesting without end."""


class ReadingError(Exception):
    """The answer holds no call that could be made; the text is for the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.info = ErrorInfo("AgentParsingError", message)


def read_arguments(call: RequestedCall) -> dict[str, Any]:
    """The arguments as an object. Raises ReadingError naming the call and what is wrong with its JSON."""
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except UNREADABLE as error:
            raise ReadingError(f"The arguments of {call.name!r} are not valid JSON: {error}") from error
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ReadingError(f"The arguments of {call.name!r} must be a JSON object, not {_kind(arguments)}")
    if nesting(arguments) > MAX_LEVELS:
        raise ReadingError(
            f"The arguments of {call.name!r} are nested too deeply: give at most {MAX_LEVELS} levels of lists and"
            " objects in each other"
        )
    return arguments


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return names.get(type(value), "null")
