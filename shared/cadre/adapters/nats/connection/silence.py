"""The requests of a connection that JetStream has not answered: a server may be there and answer only in part."""

import time
import weakref
from typing import Literal, NamedTuple, Protocol

from nats.aio.client import Client

SILENT_SECONDS = 4.0
"""Seconds without any answer after which JetStream counts as silent."""

_PULL_SECONDS = 5.0
"""The same for pulls, on which the server gives a sign of life every 2 s."""

Asked = Literal["requests", "publishes"]
"""The calls that have an answer: requests to the JetStream API, and messages that a stream acknowledges."""


class Pulling(Protocol):
    """A consumer that is pulled from."""

    @property
    def consumer(self) -> str: ...

    def silent_for(self) -> float:
        """Return the seconds since its oldest open pull, or the last sign of life of any."""
        ...


class Silent(NamedTuple):
    """The kind of call that JetStream does not answer."""

    what: Literal["requests", "publishes", "pulls"]
    seconds: float
    place: str = ""
    """A consumer."""


class Silence:
    """The calls of one connection that have no answer yet."""

    def __init__(self) -> None:
        self._open: dict[Asked, dict[object, float]] = {"requests": {}, "publishes": {}}
        self._given_up: dict[Asked, float] = {}
        self._heard: dict[Asked, float] = {}
        self._pulling: weakref.WeakSet[Pulling] = weakref.WeakSet()

    def ask(self, what: Asked, key: object) -> None:
        """Note a call."""
        self._open[what][key] = time.monotonic()

    def hear(self, what: Asked, key: object) -> None:
        """Note its answer."""
        self._open[what].pop(key, None)
        self._given_up.pop(what, None)
        self._heard[what] = time.monotonic()

    def give_up(self, what: Asked, key: object) -> None:
        """Note that it was waited for in vain."""
        began = self._open[what].pop(key, None)
        if began is not None:
            self._given_up.setdefault(what, began)

    def forget(self, what: Asked, key: object) -> None:
        """Drop a call that was cancelled or lost its connection: its silence means nothing."""
        self._open[what].pop(key, None)

    def clear(self) -> None:
        """Begin again: the connection is another one."""
        for calls in self._open.values():
            calls.clear()
        self._given_up.clear()

    def follow(self, consumer: Pulling) -> None:
        """Take the silence of a consumer into account, as long as it exists."""
        self._pulling.add(consumer)

    def leave(self, consumer: Pulling) -> None:
        """Stop that: it pulls no more."""
        self._pulling.discard(consumer)

    def now(self) -> Silent | None:
        """Return what has been silent for too long; None when nothing has."""
        for what in ("requests", "publishes"):
            if (seconds := self._seconds(what)) >= SILENT_SECONDS:
                return Silent(what, seconds)
        for one in self._pulling:
            if (seconds := one.silent_for()) >= _PULL_SECONDS:
                return Silent("pulls", seconds, one.consumer)
        return None

    def _seconds(self, what: Asked) -> float:
        began = [*self._open[what].values(), *([self._given_up[what]] if what in self._given_up else [])]
        return time.monotonic() - max(min(began), self._heard.get(what, 0.0)) if began else 0.0


_of: weakref.WeakKeyDictionary[Client, Silence] = weakref.WeakKeyDictionary()


def silence_of(nc: Client) -> Silence:
    """Return the open calls of the connection."""
    found = _of.get(nc)
    if found is None:
        found = _of[nc] = Silence()
    return found
