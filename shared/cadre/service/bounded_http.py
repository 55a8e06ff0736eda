"""Bound HTTP connections: how many a peer may open, how long a head may take, and how slowly a body may arrive."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cadre.service.health import problem_document
from cadre.settings import HttpBounds

_MIN_BODY_BYTES_PER_SECOND = 1024


def bounded_protocol(bounds: HttpBounds) -> type[asyncio.Protocol]:
    """The protocol of one server's connections."""

    class Bounded(BoundedConnection):
        limits = bounds
        peers: ClassVar[Counter[str]] = Counter()

    return Bounded


class BoundedConnection(H11Protocol):
    """A connection that is closed when its peer has too many, or sends too slowly: it is told so (503, 408) first."""

    limits: ClassVar[HttpBounds]
    peers: ClassVar[Counter[str]]
    """Open connections by address, over all connections of the server."""

    _peer = ""
    _is_refused = False
    _timer: asyncio.TimerHandle | None = None
    _awaited: tuple[RequestResponseCycle | None, bool] | None = None
    """What the timer is for: the head of a request, or the body of the one in work (True)."""
    _received_bytes = 0
    """Since the timer was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.peers[self._peer] += 1
        if self.peers[self._peer] > self.limits.peer_connections:
            most = self.limits.peer_connections
            self._refuse(
                503, "busy", f"{self._peer} has {most} connections here already (CADRE_HTTP_PEER_CONNECTIONS)"
            )
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._received_bytes += len(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def _watch(self) -> None:
        """Sets the timer for what the peer owes now, unless it is set for that already."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            awaited = (cycle, False)
        elif cycle.more_body:
            awaited = (cycle, True)
        else:
            self._unset_timer()
            return
        if awaited != self._awaited:
            self._set_timer(awaited)

    def _set_timer(self, awaited: tuple[RequestResponseCycle | None, bool]) -> None:
        self._unset_timer()
        self._awaited, self._received_bytes = awaited, 0
        seconds = self.limits.body_seconds if awaited[1] else self.limits.header_seconds
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._awaited = None

    def _time_out(self) -> None:
        awaited, self._timer = self._awaited, None
        if awaited is None or self.transport.is_closing():
            return
        if not awaited[1]:
            self._refuse(408, "request-timeout", "the head of the request did not come in time")
        elif self.cycle.more_body and not self.cycle.response_complete:
            wanted = self.limits.body_seconds * _MIN_BODY_BYTES_PER_SECOND
            # While reading is paused it is the server that is slow.
            if self.flow.read_paused or self._received_bytes >= wanted:
                self._set_timer(awaited)
            else:
                self._refuse(
                    408, "request-timeout", "the body of the request comes too slowly, or not at all"
                )

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._is_refused = True
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer(status, problem_document(status, code, detail)))
        self.transport.close()


def _answer(status: int, problem: dict[str, Any]) -> bytes:
    body = json.dumps(problem).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
