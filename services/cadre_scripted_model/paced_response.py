"""Sends an answer at its pace; stops when the client leaves, and cuts the connection when told to."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cadre_scripted_model.request_log import LogLine

NOT_AN_AI_HEADERS = {"x-cadre-scripted-model": "not-an-ai"}


class ConnectionCut(Exception):
    """The connection is to break off here: raised by the generator of an answer's pieces."""


class PacedResponse(Response):
    """A response whose head is sent with the first piece of its body."""

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        pieces: AsyncGenerator[bytes, None],
        line: LogLine,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers({**headers, **NOT_AN_AI_HEADERS, "x-cadre-rule": _printable(line.rule)})
        self._pieces = pieces
        self.release: asyncio.Event | None = None
        """Nothing is sent before it is set."""
        self.on_end: Callable[[str], None] = lambda outcome: None
        """Is called once with the outcome, as LogLine knows it, when the response has been sent or broken off."""
        line.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = "failed"
        try:
            outcome = await self._play_while_heard(receive, send)
        except asyncio.CancelledError:
            # Only the server cancels a request, when it stops: an open answer is no error then.
            outcome = "cut"
        finally:
            self.on_end(outcome)

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
        if self.release is not None:
            await self.release.wait()
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    if not started:
                        await send(head)
                        started = True
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except ConnectionCut:
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
