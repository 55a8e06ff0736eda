"""Define what a block of code and its run send each other: functions to call, calls, replies, limits.

A program sends its whole conversation with each request of its model. Kept whole, they would grow with the square of
its length: an exchange has what a request adds to an earlier one.
"""

from collections.abc import Iterable, Sequence
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


Api = Literal["chat", "responses"]
"""The two APIs that a program asks its model through; also the name of such a request in an exchange."""

CALL = "call"
"""The name, in an exchange, of the call of a tool or team member."""

MESSAGES: dict[Api, str] = {"chat": "messages", "responses": "input"}
"""The key of the conversation in the body of a request."""


def asks_model(request: CodeRequest) -> bool:
    """Return True for a request to the model, False for a call of a tool or member."""
    return request.name != CALL


def call_request(tool: str, arguments: dict[str, Any], id: str) -> CodeRequest:
    """Return the call of a tool or member; `id` is the model's own for it, "" where the program does not tell it."""
    return CodeRequest(CALL, {"tool": tool, "arguments": arguments, "id": id})


def model_request(api: Api, body: dict[str, Any], earlier: Sequence[tuple[Api, dict[str, Any]]]) -> CodeRequest:
    """Return the request as what it changes about the earlier one that shares most of its conversation."""
    said, best, shared = body.get(MESSAGES[api]), -1, 0
    for place, (other, before) in enumerate(earlier):
        if other == api and (common := _common(said, before.get(MESSAGES[api]))) >= max(shared, 1):
            best, shared = place, common
    if best < 0:
        return CodeRequest(api, {"body": body})
    assert isinstance(said, list)
    before = earlier[best][1]
    changed = {
        key: value
        for key, value in body.items()
        if key != MESSAGES[api] and not (key in before and _same(before[key], value))
    }
    gone = [key for key in before if key not in body]
    return CodeRequest(api, {"like": best, "keep": shared, "more": said[shared:], "set": changed, "drop": gone})


def bodies_of(requests: Iterable[CodeRequest]) -> list[tuple[Api, dict[str, Any]]]:
    """Return the API and the body of each model request, in their order; calls are passed over."""
    found: list[tuple[Api, dict[str, Any]]] = []
    for request in requests:
        if not asks_model(request):
            continue
        api: Api = "responses" if request.name == "responses" else "chat"
        given = request.arguments
        if "body" in given:
            found.append((api, given["body"]))
            continue
        before = found[given["like"]][1]
        body = {key: value for key, value in before.items() if key not in given["drop"]}
        body[MESSAGES[api]] = [*before[MESSAGES[api]][: given["keep"]], *given["more"]]
        found.append((api, body | given["set"]))
    return found


def _common(one: Any, other: Any) -> int:
    """Return how many messages two conversations have in common at their beginning."""
    if not isinstance(one, list) or not isinstance(other, list):
        return 0
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if not _same(a, b)), min(len(one), len(other)))


def _same(one: Any, other: Any) -> bool:
    """Return True for equal JSON values; Python takes 1, 1.0 and True for one another."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
