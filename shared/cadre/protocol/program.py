"""The requests of a program as exchanges have them: a model request says what it adds to an earlier one.

A program sends its whole conversation with each request. Kept whole, they would grow with the square of its length.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from cadre.protocol.code import CodeRequest

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


def model_request(
    api: Api, body: dict[str, Any], earlier: Sequence[tuple[Api, dict[str, Any]]]
) -> CodeRequest:
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
    return CodeRequest(
        api, {"like": best, "keep": shared, "more": said[shared:], "set": changed, "drop": gone}
    )


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
