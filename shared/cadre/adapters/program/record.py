"""The requests of a program's earlier lives, with their outcomes: the requests of a new life are found by their
content, never by their order, and one that has no place in the record is noticed."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from cadre.protocol.code import (
    MESSAGES,
    Api,
    CodeExchange,
    CodeReply,
    CodeRequest,
    asks_model,
    bodies_of,
    call_request,
    model_request,
)

_VOLATILE = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "store", "stream", "stream_options"}
)
"""Keys of a request that say nothing of what the model is to answer."""

_SHOWN = 50
"""Characters of each of two texts that differ."""


class RecordEntry:
    """A request of the program, and its answer once that has come.

    Attributes:
        place: its number among all requests of the run, from 0.
        depth: of a model request, how many answers of a model are in it; of a call, how many model requests were made
            before it.
        pause: seconds after which the program asked, counted from the last answer before.
        is_taken: this life has asked for it.
        is_released: this life has been given its answer.
    """

    def __init__(self, place: int, request: CodeRequest, content: dict[str, Any], depth: int, pause: float) -> None:
        self.place = place
        self.request = request
        self.content = content
        self.depth = depth
        self.pause = pause
        self.reply: CodeReply | None = None
        self.is_taken = self.is_released = False
        self.exact = _canonical(content)
        self.normal = _canonical(_normal(content)) if asks_model(request) else self.exact


class Record:
    """All requests of one run in the order in which they were made.

    Args:
        exchanges: those that the journal has.
    """

    def __init__(self, exchanges: Sequence[CodeExchange]) -> None:
        self.entries: list[RecordEntry] = []
        self._bodies: list[tuple[Api, dict[str, Any]]] = []
        bodies = iter(bodies_of([one for exchange in exchanges for one in exchange.calls]))
        for exchange in exchanges:
            pause = exchange.clock[0] if exchange.clock else 0.0
            for request, reply in zip(exchange.calls, exchange.replies, strict=True):
                body = next(bodies) if asks_model(request) else None
                self._append(request, body, pause).reply = reply

    def find_model(self, api: Api, body: dict[str, Any]) -> RecordEntry | None:
        """Return the first entry, not asked for in this life, of the same request; else one that differs in what says
        nothing to the model; None where there is neither."""
        exact, normal = _canonical(body), _canonical(_normal(body))
        free = [one for one in self._free() if one.request.name == api]
        same = (one for one in free if one.exact == exact)
        return next(same, None) or next((one for one in free if one.normal == normal), None)

    def find_call(self, tool: str, arguments: dict[str, Any], id: str) -> RecordEntry | None:
        """Return the first entry, not asked for in this life, of the same call."""
        exact = _canonical(call_request(tool, arguments, id).arguments)
        calls = (one for one in self._free() if not asks_model(one.request))
        return next((one for one in calls if one.exact == exact), None)

    def find_taken(self, content: dict[str, Any]) -> RecordEntry | None:
        """Return the latest entry of the same request that this life has asked for: its client sends it again."""
        exact = _canonical(content)
        return next((one for one in reversed(self.entries) if one.is_taken and one.exact == exact), None)

    def add_model(self, api: Api, body: dict[str, Any], pause: float) -> RecordEntry:
        """Add a request that is new."""
        return self._taken(self._append(model_request(api, body, self._bodies), (api, body), pause))

    def add_call(self, tool: str, arguments: dict[str, Any], id: str, pause: float) -> RecordEntry:
        """Add a call that is new."""
        return self._taken(self._append(call_request(tool, arguments, id), None, pause))

    def rivals_of_model(self, api: Api, body: dict[str, Any]) -> list[RecordEntry]:
        """Return the entries that a request without a match may have been meant to be: those, not asked for yet, that
        are as deep in their conversation."""
        depth = _depth(api, body)
        return [one for one in self._free() if one.request.name == api and one.depth == depth]

    def rivals_of_call(self) -> list[RecordEntry]:
        """Return the calls, not asked for yet, that were made behind the last model request of this life or later."""
        asked = [one.place for one in self.entries if one.is_taken and asks_model(one.request)]
        before = self._requests_before(max(asked) + 1 if asked else 0)
        return [one for one in self._free() if not asks_model(one.request) and one.depth >= before]

    def _requests_before(self, place: int) -> int:
        return sum(asks_model(one.request) for one in self.entries[:place])

    def _free(self) -> Iterator[RecordEntry]:
        return (one for one in self.entries if not one.is_taken)

    def _append(self, request: CodeRequest, body: tuple[Api, dict[str, Any]] | None, pause: float) -> RecordEntry:
        if body is None:
            depth, content = len(self._bodies), request.arguments
        else:
            depth, content = _depth(*body), body[1]
            self._bodies.append(body)
        entry = RecordEntry(len(self.entries), request, content, depth, pause)
        self.entries.append(entry)
        return entry

    @staticmethod
    def _taken(entry: RecordEntry) -> RecordEntry:
        entry.is_taken = True
        return entry


def difference(entry: RecordEntry, content: dict[str, Any]) -> str:
    """Return where a request first differs from an entry, as a JSON path with both values."""
    return next(_differences(entry.content, content, "$"), "$: nothing differs")


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if type(one) is not type(other):
        yield f"{path}: {_short(one)} -> {_short(other)}"
    elif isinstance(one, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one:
                yield f"{path}.{key}: absent -> {_short(other[key])}"
            elif key not in other:
                yield f"{path}.{key}: {_short(one[key])} -> absent"
            else:
                yield from _differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        for place, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from _differences(left, right, f"{path}[{place}]")
        if len(one) != len(other):
            yield f"{path}: length {len(one)} -> {len(other)}"
    elif one != other:
        at = 0
        if isinstance(one, str):
            pairs = enumerate(zip(one, other, strict=False))
            at = max(0, next((n for n, (a, b) in pairs if a != b), min(len(one), len(other))) - 10)
        yield f"{path}: {_short(one, at)} -> {_short(other, at)}"


def _short(value: Any, begin: int = 0) -> str:
    if isinstance(value, str):
        return ("…" if begin else "") + repr(value[begin : begin + _SHOWN])
    return _canonical(value)[:_SHOWN]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _normal(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request without what is different in each life of some programs and nothing to the model."""
    found = {key: value for key, value in body.items() if key not in _VOLATILE}
    if isinstance(found.get("tools"), list):
        found["tools"] = sorted(found["tools"], key=_canonical)
    return found


def _depth(api: Api, body: dict[str, Any]) -> int:
    said = body.get(MESSAGES[api])
    return sum(map(_is_answer, said)) if isinstance(said, list) else 0


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and (
        message.get("role") == "assistant" or message.get("type") in ("function_call", "reasoning")
    )
