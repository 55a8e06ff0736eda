"""Tools and team members as plain functions of the code, and `gather` to call several at once."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any

from cadre_sandbox.wire.signatures import parse


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
        """The call with these arguments, not made yet. Raises TypeError for arguments that the signature does not
        take."""
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
    """The offered function of that name; else one that says it is no longer offered. Snapshots refer to functions by
    it."""

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise NameError(f"the function {name} is no longer offered")

    return offered.get(name) or SandboxFunction(name, "", gone)


def gather(
    call: Callable[[Sequence[DeferredCall]], list[Any]], keep: Callable[[list[Any]], None]
) -> SandboxFunction:
    """The function `gather` of the code. `keep` is given all results when some failed, so that the others are not
    lost."""

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
