"""Asynchronous methods for programs without an event loop: each is waited for."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from cadre.options import Explaining

A = TypeVar("A", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


def has_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Blocking(Generic[A], metaclass=Explaining):
    """Something asynchronous, and the loop that it lives in."""

    def __init__(self, target: A, loop: asyncio.Runner) -> None:
        self._target = target
        self._loop = loop

    if not TYPE_CHECKING:  # type checkers know that these do not exist

        def __aenter__(self) -> NoReturn:
            raise TypeError(f"{type(self).__name__} blocks: write `with`, or await the methods of its async twin")

        __aexit__ = __aenter__

        def __aiter__(self) -> NoReturn:
            raise TypeError(f"{type(self).__name__} blocks: write `for`, or await the methods of its async twin")

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. Raises RuntimeError where a loop runs already, which this would stop."""
        if not has_loop():
            return self._loop.run(coroutine)
        coroutine.close()
        raise RuntimeError(
            "an event loop is running here: await the methods of AsyncClient, of `async with Team(…)`, or agent.run"
        )


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """Return the method as a blocking one."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._target, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """Return the iterator as a blocking one."""

    @functools.wraps(method)
    def iterate(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._target, *args, **kwargs)
        try:
            while (found := self._wait(_next(items))) is not None:
                yield found[0]
        finally:
            self._wait(_closed(items))

    return iterate


class Mirrored(Generic[T]):
    """An attribute that shows that of the target with the same name: `state: Mirrored[State] = Mirrored(Target)`."""

    def __init__(self, of: type) -> None:
        self._of = of

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self.__doc__ = getattr(getattr(self._of, name, None), "__doc__", None)

    @overload
    def __get__(self, instance: None, owner: type) -> "Mirrored[T]": ...

    @overload
    def __get__(self, instance: Blocking[Any], owner: type) -> T: ...

    def __get__(self, instance: Blocking[Any] | None, owner: type) -> "Mirrored[T] | T":
        found: T | Mirrored[T] = self if instance is None else getattr(instance._target, self._name)
        return found


def plain(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Blocking[A], P], T]:
    """Return a method that waits for nothing as one of the blocking twin."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._target, *args, **kwargs)

    return call


async def _closed(items: AsyncGenerator[T, None]) -> None:
    await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None
