"""nats-py's client, mended where a message or an unlucky moment would leave a process deaf without a word.

The original stops reading at what it cannot decode, stops reconnecting at an error that only uvloop raises, and closes
itself at most errors that a server reports: each is met where it arises (decision 0016).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client

log = logging.getLogger("cadre.nats")


class NatsClient(Client):
    """A client that calls `given_up` with the reason when it has closed itself for good, unasked."""

    def __init__(self, given_up: Callable[[str], None]) -> None:
        super().__init__()
        self._given_up = given_up
        self._leaving = False

    async def close(self) -> None:
        """Closes the connection, as asked: `given_up` is not called."""
        self._leaving = True
        await super().close()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        unasked = not self._leaving and not self.is_closed
        reason = str(self._err or "the client closed itself")
        await super()._close(status, do_cbs)
        if unasked:
            self._given_up(reason)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except RuntimeError as error:
            # uvloop's word for writing to a connection that was reset: one more reason to try again.
            raise ConnectionResetError(str(error)) from error

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError) as error:
            log.warning("a message has headers that cannot be read: it is taken without (%s)", error)
            return None
        return found

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        try:
            return super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            return super()._build_message(sid, _as_utf8(subject), _as_utf8(reply), data, headers)

    async def _process_pong(self) -> None:
        # Whoever asked may have been cancelled, or have lost patience.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


def _as_utf8(name: bytes) -> bytes:
    """Returns the name with a mark for each byte that is no text."""
    return name.decode(errors="replace").encode()
