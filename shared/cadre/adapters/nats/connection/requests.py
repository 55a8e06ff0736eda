"""Requests over core NATS on one standing subscription for their answers: what nats-py's `request` does, at half the
price; and the answering of requests. Nothing is stored."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.client import NatsClient
from cadre.delivery.deadlines import Deadlines
from cadre.errors import NotPermitted

_FEW = 3

_of: weakref.WeakKeyDictionary[Client, Requests] = weakref.WeakKeyDictionary()


async def request(
    nc: Client,
    subject: str,
    data: bytes,
    headers: dict[str, str] | None,
    within: float,
    meanwhile: Callable[[], None] | None = None,
) -> Msg:
    """Return the first answer to a request, which may take `within` seconds; `meanwhile` is called while it is
    awaited. Raises nats.errors.TimeoutError, NoRespondersError or another nats.errors.Error, and NotPermitted."""
    return await _requests_of(nc).ask(subject, data, headers, within, meanwhile)


async def request_apart(nc: Client, apart: str, subject: str, data: bytes, within: float) -> Msg:
    """Do as `request`, but is answered in the part of the inbox that `apart` names: a user who may publish there
    alone can answer no other request."""
    return await _requests_of(nc).ask(subject, data, None, within, None, apart)


def _requests_of(nc: Client) -> Requests:
    requests = _of.get(nc)
    if requests is None:
        requests = _of[nc] = Requests(nc)
    return requests


def give_up_all(nc: Client) -> None:
    """Fail the open requests of a connection that is lost: their answers would have come over it."""
    if (requests := _of.get(nc)) is not None:
        requests.give_up_all()


def refuse(nc: Client, subject: str) -> None:
    """Fail the open requests to a subject that this user may not publish to. The server names the subject in lower
    case."""
    if (requests := _of.get(nc)) is not None:
        requests.refuse(subject)


def refuse_answers(nc: Client, subject: str) -> None:
    """Fail all open requests when `subject` is where their answers arrive and this user may not subscribe to it. The
    server names the subject in lower case."""
    if (requests := _of.get(nc)) is not None:
        requests.refuse_answers(subject)


class Requests:
    """The open requests of one connection."""

    def __init__(self, nc: Client) -> None:
        # The connection is this object's key in a weak dictionary: it must not be kept alive from here.
        self._nc = weakref.ref(nc)
        self._inbox = nc.new_inbox()
        self._count = 0
        self._open: dict[str, tuple[asyncio.Future[Msg], str]] = {}
        self._deadlines = Deadlines()
        self._listening: asyncio.Task[Subscription] | None = None

    async def ask(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        within: float,
        meanwhile: Callable[[], None] | None,
        apart: str = "",
    ) -> Msg:
        """Send a request and return its answer; see `request`."""
        nc = self._nc()
        if nc is None:
            raise nats.errors.ConnectionClosedError
        await self._listen(nc)
        loop = asyncio.get_running_loop()
        self._count += 1
        token = f"{apart}.{self._count}" if apart else str(self._count)
        answer: asyncio.Future[Msg] = loop.create_future()
        self._open[token] = (answer, subject)
        self._deadlines.add(token, within, functools.partial(_give_up, answer))
        try:
            await nc.publish(subject, data, reply=f"{self._inbox}.{token}", headers=headers)
            if meanwhile is not None:
                await self._sent()
                meanwhile()
            message = await answer
        finally:
            self._deadlines.remove(token)
            del self._open[token]
        if message.headers and message.headers.get("Status") == "503":
            raise nats.errors.NoRespondersError
        return message

    async def _listen(self, nc: Client) -> None:
        """Subscribe to the answers, once; the request after a failed subscription subscribes again."""
        listening = self._listening
        if listening is None or (listening.done() and (listening.cancelled() or listening.exception())):
            assert isinstance(nc, NatsClient), "made by `connect` (decision 0016)"
            listening = asyncio.create_task(nc.listen(f"{self._inbox}.>", self._on_answer))
            self._listening = listening
        if not listening.done():
            await asyncio.shield(listening)

    async def _sent(self) -> None:
        """Let the client's writer send what was published: that takes one turn of the event loop to wake it and one to
        write. Among many requests the turns would cost more than they gain."""
        if len(self._open) <= _FEW:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def give_up_all(self) -> None:
        """Fail all of them: the connection is lost."""
        for answer, _ in self._open.values():
            if not answer.done():
                answer.set_exception(nats.errors.Error("the connection was lost"))

    def refuse(self, subject: str) -> None:
        """Fail those to this subject."""
        for answer, asked in self._open.values():
            if asked.lower() == subject.lower() and not answer.done():
                answer.set_exception(NotPermitted(asked))

    def refuse_answers(self, subject: str) -> None:
        """Fail all of them if this is the subject of their answers; the next request subscribes again."""
        inbox = f"{self._inbox}.>"
        if subject.lower() != inbox.lower():
            return
        self._listening = None
        for answer, _ in self._open.values():
            if not answer.done():
                answer.set_exception(NotPermitted(inbox, "subscribe"))

    def _on_answer(self, message: Msg) -> None:
        found = self._open.get(message.subject[len(self._inbox) + 1 :])
        if found is not None and not found[0].done():
            found[0].set_result(message)


def _give_up(answer: asyncio.Future[Msg]) -> None:
    if not answer.done():
        answer.set_exception(nats.errors.TimeoutError())


log = logging.getLogger("cadre.nats")


class RequestServer:
    """Answers each request on `subject` with the bytes that `answer` returns for it, each in its own task: a slow
    answer delays no other.

    Of several servers that share a `queue` one gets each request.
    """

    def __init__(self, nc: Client, subject: str, answer: Callable[[Msg], Awaitable[bytes]], *, queue: str = "") -> None:
        self._nc = nc
        self._subject = subject
        self._answer = answer
        self._queue = queue
        self._subscription: Subscription | None = None
        self._at_work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribe. The server may not know of it before `connect.settled` has returned."""
        self._subscription = await self._nc.subscribe(self._subject, queue=self._queue, cb=self._on_request)

    async def stop(self) -> None:
        """Take no more requests."""
        if self._subscription is not None and not self._nc.is_closed:
            await self._subscription.unsubscribe()

    async def drain(self, grace: float) -> None:
        """Take no more requests; those that have arrived have `grace` seconds to be answered."""
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
            log.error("%s failed, and its caller got no answer", task.get_name(), exc_info=error)
