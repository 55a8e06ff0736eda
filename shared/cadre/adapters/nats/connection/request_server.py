"""Answers requests over core NATS: nothing stored, nobody waited for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

log = logging.getLogger("cadre.nats")


class RequestServer:
    """Answers each request on `subject` with the bytes that `answer` returns for it, in a task of its own: a slow
    answer holds up no other.

    Of several servers that share a `queue` one gets each request.
    """

    def __init__(
        self, nc: Client, subject: str, answer: Callable[[Msg], Awaitable[bytes]], *, queue: str = ""
    ) -> None:
        self._nc = nc
        self._subject = subject
        self._answer = answer
        self._queue = queue
        self._subscription: Subscription | None = None
        self._at_work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribes. The server may not know of it before `connect.settled` has returned."""
        self._subscription = await self._nc.subscribe(self._subject, queue=self._queue, cb=self._on_request)

    async def stop(self) -> None:
        """Takes no more requests."""
        if self._subscription is not None and not self._nc.is_closed:
            await self._subscription.unsubscribe()

    async def drain(self, grace: float) -> None:
        """Takes no more requests; those that have arrived have `grace` seconds to be answered."""
        if self._subscription is not None and self._nc.is_connected:
            try:
                # What the server has handed to this replica already is still answered.
                await self._subscription.drain()  # type: ignore[no-untyped-call]
            except nats.errors.Error as error:
                log.warning("requests that were on their way are not answered: %s", error)
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=grace)
        for task in self._at_work:
            task.cancel()

    async def _on_request(self, message: Msg) -> None:
        if not message.reply:
            return
        task = asyncio.create_task(self._respond(message), name=message.subject)
        self._at_work.add(task)
        task.add_done_callback(self._done)

    async def _respond(self, message: Msg) -> None:
        data = await self._answer(message)
        try:
            await self._nc.publish(message.reply, data)
        except nats.errors.Error as error:
            log.warning("%s not answered: %s", message.subject, error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s failed, and nobody was answered", task.get_name(), exc_info=error)
