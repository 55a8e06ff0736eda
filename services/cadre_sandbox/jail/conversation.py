"""The calls of a block: answered from what is recorded while that lasts, then yielded to the outside."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from cadre_sandbox.jail.clock import clock
from cadre_sandbox.jail.functions import DeferredCall, call_error
from cadre_sandbox.jail.values import from_value, to_value
from cadre_sandbox.wire.frames import Frame, encode
from cadre_sandbox.wire.values import (
    MAX_BINARY_BYTES,
    MAX_CALLS,
    MAX_JSON_SIZE,
    MAX_YIELD_BYTES,
    Value,
    json_size,
    pack,
    unpack,
)

_MAX_SHOWN_CHARS = 300

_TURN_SECONDS = 5.0
"""Seconds for which a call of one thread waits for those that other threads made before it the first time."""


class ReplayDiverged(BaseException):
    """The block does not make the calls that it made the first time. It is no Exception: it ends the block in any
    case."""


class Host(Protocol):
    """What a conversation asks the outside by."""

    def ask(self, header: dict[str, Any], blobs: Sequence[bytes]) -> Frame:
        """Send the calls, and return the frame of the outside's answer; the stopwatch rests meanwhile."""


class Conversation:
    """The calls of one block.

    `past` are recorded exchanges as packed by the outside, with the blobs that they refer to.
    """

    def __init__(self, host: Host, past: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> None:
        self._host = host
        self._past = deque(past)
        self._blobs = blobs
        self._yields = 0
        self._turn = threading.Condition()
        self._is_over = False
        self.diverged: str | None = None
        self._next_clock()

    def call(self, calls: Sequence[DeferredCall]) -> list[Any]:
        """Make the calls, and return their results in order, a CallError in the place of each call that failed. Calls
        of several threads are made one after the other."""
        if len(calls) > MAX_CALLS:
            raise ValueError(f"{len(calls)} calls at once are too many, at most {MAX_CALLS} may be")
        named = [(made.function.__name__, _arguments(made)) for made in calls]
        # Refused the second time as well, when it would not be asked.
        packed, given = _packed(named)
        with self._turn:
            if self._is_over:
                raise RuntimeError(
                    "the code that started this thread has ended: no function can be called any more"
                )
            if self._past and threading.active_count() > 1:
                self._turn.wait_for(lambda: not self._past or self._recorded() == named, _TURN_SECONDS)
            self._yields += 1
            if self._past:
                results, blobs = self._replay(named), self._blobs
            else:
                results, blobs = self._ask(packed, given)
            self._turn.notify_all()
        return [_result(result, blobs) for result in results]

    def end(self) -> None:
        """Let no thread call anything from now on; one that waits for an answer gets it first."""
        with self._turn:
            self._is_over = True

    def check_all_used(self) -> None:
        """Raise ReplayDiverged when the block ends before the recorded calls do, or caught it earlier."""
        if self.diverged:
            raise ReplayDiverged(self.diverged)
        if self._past:
            self._diverge(f"this time the block ended after {self._yields} of the recorded calls")

    def _ask(self, calls: list[dict[str, Any]], blobs: list[bytes]) -> tuple[list[Any], Sequence[bytes]]:
        answer = self._host.ask({"kind": "yielded", "calls": calls, "clock": clock.take()}, blobs)
        return answer.header["results"], answer.blobs

    def _replay(self, named: list[tuple[str, dict[str, Value]]]) -> list[Any]:
        before = self._recorded()
        exchange = self._past.popleft()
        if before != named:
            self._diverge(
                f"call {self._yields} was {_shown(before)} the first time, and is {_shown(named)} now"
            )
        self._next_clock()
        results: list[Any] = exchange["results"]
        return results

    def _recorded(self) -> list[tuple[str, Value]]:
        """The calls that were made at this point the first time."""
        return [(call["name"], unpack(call["arguments"], self._blobs)) for call in self._past[0]["calls"]]

    def _next_clock(self) -> None:
        clock.start(self._past[0]["clock"] if self._past else ())

    def _diverge(self, why: str) -> None:
        self.diverged = (
            f"The interpreter was restarted and ran this block again, but {why}. Blocks that call functions must do "
            "the same each time they run: let no call depend on chance, on time elapsed or on threads."
        )
        raise ReplayDiverged(self.diverged)


def _arguments(made: DeferredCall) -> dict[str, Value]:
    name = made.function.__name__
    given = {key: to_value(value, f"the argument {key} of {name}") for key, value in made.arguments.items()}
    if (size := json_size(given)) > MAX_JSON_SIZE:
        most = f"at most {MAX_JSON_SIZE / 1e6:.0f} MB may be (bytes objects: {MAX_BINARY_BYTES / 1e6:.0f} MB)"
        raise ValueError(f"the arguments of {name} are {size / 1e6:.1f} MB, {most}")
    return given


def _packed(named: list[tuple[str, dict[str, Value]]]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The calls and their blobs for the outside. Raises ValueError for more than it takes."""
    blobs: list[bytes] = []
    calls = [{"name": name, "arguments": pack(arguments, blobs)} for name, arguments in named]
    if (size := sum(map(len, blobs))) > MAX_BINARY_BYTES:
        raise ValueError(
            f"the bytes given to functions are {size / 1e6:.0f} MB, at most {MAX_BINARY_BYTES / 1e6:.0f} may be"
        )
    if (size := len(encode({"calls": calls}))) > MAX_YIELD_BYTES:
        most = f"at most {MAX_YIELD_BYTES / 1e6:.0f} MB may be: gather fewer calls at once"
        raise ValueError(f"the arguments of all calls together are {size / 1e6:.1f} MB, {most}")
    return calls, blobs


def _result(result: dict[str, Any], blobs: Sequence[bytes]) -> Any:
    if result["error"] is not None:
        return call_error(result["error"], result["raised"])
    return from_value(unpack(result["value"], blobs))


def _shown(calls: Sequence[tuple[str, Any]]) -> str:
    texts = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls
    ]
    text = " and ".join(texts)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
