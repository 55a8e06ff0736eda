"""Define what a block of code and its run send each other: functions to call, calls, replies, limits."""

from typing import Any, Literal

import msgspec

from cadre.protocol.usage import Seconds

BlobForm = Literal["text", "json"]
"""The form of the blob of a value too large to travel: the text that it is, or its JSON."""


BASE_IMPORTS = [
    "collections",
    "datetime",
    "itertools",
    "math",
    "queue",
    "random",
    "re",
    "stat",
    "statistics",
    "time",
    "unicodedata",
]
"""The modules that code may import when its agent says nothing else."""

INTERPRETER_TOOL = "python_interpreter"
"""The tool that the sandboxes of the default pool serve; that of another pool has `_<pool>` behind its name."""


class CodeFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool or team member that code may call by its name."""

    name: str
    signature: str
    """As Python has it: `(query: str, limit: int = 10) -> str`."""
    kind: Literal["tool", "member"] = "tool"
    doc: str = ""


class CodeRequest(msgspec.Struct, frozen=True):
    """A call that code waits for; arguments by parameter name."""

    name: str
    arguments: dict[str, Any] = {}


class CodeReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of such a call. With `error` it raises inside the code."""

    value: Any = None
    error: str | None = None
    raised: str = ""
    """The class of the exception that a tool raised: the code can catch it by that."""
    blob: str | None = None
    """Has the value whole when `value` is a text that was cut."""
    blob_form: BlobForm = "text"


class CodeExchange(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that code made at once, and their replies in the same order: what a replay is fed."""

    calls: list[CodeRequest]
    replies: list[CodeReply]
    clock: list[float] = []
    """The values that the code read from the clock before these calls."""


class CodeLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one block of code."""

    seconds: Seconds = 30.0
    """Of the block's computing time; waiting for calls is free."""
    wall_seconds: Seconds | None = None
    """From its beginning to its end, waiting for calls and people included."""
    memory_mb: int = 512
    print_chars: int = 50_000
    output_chars: int = 20_000
