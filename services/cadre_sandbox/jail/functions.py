"""Tools and team members as plain functions of the code, `gather` to call several at once, and the calls of a block:
answered from what is recorded while that lasts, then yielded to the outside."""

from __future__ import annotations

import builtins
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cadre_sandbox.jail.clock import clock
from cadre_sandbox.jail.values import from_value, to_value
from cadre_sandbox.wire.frames import Frame, encode
from cadre_sandbox.wire.signatures import parse
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


class CallError(Exception):
    """A tool or team member failed; the message is its own. Where a tool raised one of Python's own exceptions, it is
    one of those too: `except ValueError` catches it."""

    def __init__(self, message: str, raised: str = "") -> None:
        Exception.__init__(self, message)
        self.raised = raised

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> Any:
        return call_error, (*self.args, self.raised)


class GatherError(CallError):
    """Some of several calls failed. `results` has every result in order, a CallError in the place of a failed one."""

    def __init__(self, message: str, results: list[Any]) -> None:
        super().__init__(message)
        self.results = results

    def __reduce__(self) -> Any:
        return GatherError, (*self.args, self.results)


def call_error(message: str, raised: str = "") -> CallError:
    """Return the error of a failed call, of the class that the tool raised where that is one of Python's own."""
    return _class_of_error(raised)(message, raised)


@functools.cache
def _class_of_error(name: str) -> type[CallError]:
    found = getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)) or found is Exception:
        return CallError
    if issubclass(found, StopIteration | StopAsyncIteration):
        return CallError  # would end the generator that makes the call
    return type(CallError.__name__, (CallError, found), {"__module__": CallError.__module__})


class DeferredCall:
    """A call that is not made yet: `gather` makes it."""

    def __init__(self, function: Tool, arguments: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"<{self.function.__name__}.later(…): pass it to gather(…)>"


class Tool:
    """A function of the outside. `tool(…)` calls it and waits; `tool.later(…)` is for gather."""

    def __init__(
        self, name: str, signature: str, doc: str, call: Callable[[Sequence[DeferredCall]], list[Any]]
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self.__signature__ = parse(name, signature)
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        (result,) = self._call([self.later(*args, **kwargs)])
        if isinstance(result, CallError):
            raise result
        return result

    def later(self, /, *args: Any, **kwargs: Any) -> DeferredCall:
        """Return the call with these arguments, not made yet. Raises TypeError for arguments that the signature does
        not take."""
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}{self.__signature__}: {error}") from None
        arguments = dict(bound.arguments)
        for parameter in self.__signature__.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name, {}))
        return DeferredCall(self, arguments)

    def __repr__(self) -> str:
        return f"<function {self.__name__}{self.__signature__}>"

    def __reduce__(self) -> Any:
        return function_by_name, (self.__name__,)


class SandboxFunction:
    """A function of the sandbox itself, such as gather. A snapshot holds its name only."""

    def __init__(self, name: str, doc: str, function: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"

    def __reduce__(self) -> Any:
        return function_by_name, (self.__name__,)


offered: dict[str, Any] = {}
"""The functions of the running block by name; a snapshot refers to them so."""


def function_by_name(name: str) -> Any:
    """Return the offered function of that name; else one that says it is no longer offered. Snapshots refer to
    functions by it."""

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise NameError(f"the function {name} is no longer offered")

    return offered.get(name) or SandboxFunction(name, "", gone)


def gather(call: Callable[[Sequence[DeferredCall]], list[Any]], keep: Callable[[list[Any]], None]) -> SandboxFunction:
    """Return the function `gather` of the code. `keep` is given all results when some failed, so that the others are
    not lost."""

    def run(*calls: DeferredCall) -> list[Any]:
        for made in calls:
            if not isinstance(made, DeferredCall):
                raise TypeError(
                    "gather takes calls not made yet: gather(search.later('a'), search.later('b')), "
                    f"not {type(made).__name__}"
                )
        results = call(calls) if calls else []
        failed = [
            f"[{index}] {made.function.__name__}: {result}"
            for index, (made, result) in enumerate(zip(calls, results, strict=True))
            if isinstance(result, CallError)
        ]
        if failed:
            keep(results)
            lines = "\n".join(failed)
            raise GatherError(
                f"{len(failed)} of {len(calls)} calls failed; the variable `gathered` has all results in order, "
                f"with the error in the place of each that failed.\n{lines}",
                results,
            )
        return results

    doc = "gather(tool_a.later(…), tool_b.later(…)): makes the calls at the same time, returns the results in order."
    return SandboxFunction("gather", doc, run)


_MAX_SHOWN_CHARS = 300

_TURN_SECONDS = 5.0
"""Seconds for which a call of one thread waits for those that other threads made before it the first time."""


class ReplayDiverged(BaseException):
    """The block does not make the calls that it made the first time. It is no Exception: it ends the block in any
    case."""


class Host(Protocol):
    """A conversation's means to ask the outside."""

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
                raise RuntimeError("the code that started this thread has ended: no function can be called any more")
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
            self._diverge(f"call {self._yields} was {_shown(before)} the first time, and is {_shown(named)} now")
        self._next_clock()
        results: list[Any] = exchange["results"]
        return results

    def _recorded(self) -> list[tuple[str, Value]]:
        """Return the calls that were made at this point the first time."""
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
    """Return the calls and their blobs for the outside. Raises ValueError for more than it takes."""
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
    texts = [f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls]
    text = " and ".join(texts)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
