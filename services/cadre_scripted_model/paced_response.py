"""Sends an answer at its pace: stops when the client leaves, cuts the connection when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cadre_scripted_model.request_log import Journal, Line

HONESTY = {"x-cadre-scripted-model": "not-an-ai"}


class Cut(Exception):
    """Raised by the pieces of an answer where its connection is to break off."""


class Performance(Response):
    """A response whose head is sent with the first piece of its body."""

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        pieces: AsyncGenerator[bytes, None],
        journal: Journal,
        line: Line,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers({**headers, **HONESTY, "x-cadre-rule": _printable(line.rule)})
        self._pieces = pieces
        self._journal = journal
        self._line = line
        line.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = "failed"
        try:
            outcome = await self._play_while_heard(receive, send)
        except asyncio.CancelledError:
            # Only the server cancels a request, when it stops: an open answer is no error then.
            outcome = "cut"
        finally:
            self._journal.end(self._line, outcome)

    async def _play_while_heard(self, receive: Receive, send: Send) -> str:
        gone = asyncio.ensure_future(_gone(receive))
        playing = asyncio.ensure_future(self._play(send))
        try:
            await asyncio.wait({gone, playing}, return_when=asyncio.FIRST_COMPLETED)
            return playing.result() if playing.done() else "left"
        finally:
            for task in (gone, playing):
                task.cancel()
            await asyncio.gather(gone, playing, return_exceptions=True)

    async def _play(self, send: Send) -> str:
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        started = False
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    if not started:
                        await send(head)
                        started = True
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Cut:
            if not started:
                await send(head)
            # A response that ends without its last body message makes the server close the connection.
            return "cut"
        if not started:
            await send(head)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return "answered"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _printable(text: str) -> str:
    return text.encode("ascii", "replace").decode()
