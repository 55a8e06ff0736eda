"""What every route works with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cadre.adapters.nats.archive import NatsArchive
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.history import History
from cadre.adapters.nats.sessions import NatsSessions
from cadre.adapters.nats.tail import Tail
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.errors import BusUnavailable
from cadre.service.frame import Platform
from cadre.settings import TracingSettings
from cadre_gateway.capacity import Capacity
from cadre_gateway.index.run_list import Index
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.problems import Problem
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.retention.ledger import Ledger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ANSWER_WITHIN = 6.0
"""Seconds that all questions to NATS of one request may take together."""


@dataclass(eq=False)
class Desk:
    platform: Platform
    index: Index
    tail: Tail
    history: History
    sessions: NatsSessions
    ledger: Ledger
    janitor: Janitor
    erasure: NatsErasure
    archive: NatsArchive
    capacity: Capacity
    files: NatsFileIndex
    tracing: TracingSettings
    provider: TracerProvider | None = None
    """Of the spans of requests; None when they are recorded nowhere."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    _feeds: set[tuple[str, Feed[Any]]] = field(default_factory=set)
    """Each with the tree that it tells of."""

    def check(self) -> None:
        """Raises what a request is answered with at once when this gateway cannot serve it."""
        if self.draining.is_set():
            raise Problem(
                503, "draining", "this gateway is stopping: ask another one, or this one when it is back"
            )
        if not self.platform.nc.is_connected:
            raise BusUnavailable("serving a request", "not connected to the server")

    @contextmanager
    def open(self, tree: str, feed: Feed[Any]) -> Iterator[None]:
        """Inside, `feed` is closed when the gateway drains, and when the tree is erased."""
        self._feeds.add((tree, feed))
        try:
            yield
        finally:
            self._feeds.discard((tree, feed))

    def close(self, tree: str) -> None:
        """Ends the open streams of a tree that was erased: nothing of it will ever happen again."""
        for of, feed in self._feeds:
            if of == tree:
                feed.close()

    def drain(self) -> None:
        """Ends all open streams; they tell their clients to come back."""
        self.draining.set()
        for _, feed in self._feeds:
            feed.close()
