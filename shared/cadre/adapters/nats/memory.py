"""Asking the memory service over core NATS, and answering for it: a request, one reply, nothing stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.connection.requests import request_apart
from cadre.errors import CadreError, MemoryRefused, MemoryUnavailable
from cadre.protocol.memory import (
    ANSWERS,
    VERBS,
    ForgetRequest,
    Found,
    Listed,
    ListRequest,
    Receipt,
    Refused,
    Reply,
    SearchRequest,
    ShowRequest,
    Stats,
    StatsRequest,
)
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.memory")

ANSWER_WITHIN = 10.0
"""Seconds."""

FORGET_WITHIN = 120.0
"""Seconds that a large removal may take."""

_QUEUE = "memory"

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Answer = Callable[[Any], Awaitable[Any]]


class NatsMemory:
    """A client. Every method raises MemoryUnavailable and MemoryRefused."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def search(self, asked: SearchRequest) -> Found:
        found: Found = await self._ask("search", asked)
        return found

    async def list(self, asked: ListRequest) -> Listed:
        found: Listed = await self._ask("list", asked)
        return found

    async def show(self, asked: ShowRequest) -> Listed:
        found: Listed = await self._ask("show", asked)
        return found

    async def forget(self, asked: ForgetRequest) -> Receipt:
        found: Receipt = await self._ask("forget", asked, FORGET_WITHIN)
        return found

    async def export(self, asked: ListRequest) -> Listed:
        found: Listed = await self._ask("export", asked)
        return found

    async def stats(self) -> Stats:
        found: Stats = await self._ask("stats", StatsRequest())
        return found

    async def _ask(self, verb: str, asked: Any, within: float = ANSWER_WITHIN) -> Any:
        subject = self._topology.memory(verb)
        try:
            message = await request_apart(self._nc, ANSWERS, subject, msgspec.json.encode(asked), within)
        except nats.errors.NoRespondersError as error:
            raise MemoryUnavailable("no memory service is running: start one with `cadre memory`") from error
        except nats.errors.TimeoutError as error:
            raise MemoryUnavailable(f"the memory service did not answer within {within:g} s") from error
        except nats.errors.Error as error:
            raise MemoryUnavailable(f"the memory service could not be asked: {error}") from error
        try:
            reply = msgspec.json.decode(message.data, type=Reply)
            if reply.error is None:
                return msgspec.json.decode(reply.ok, type=VERBS[verb][1])
        except _UNREADABLE as error:
            raise MemoryUnavailable(f"the memory service answered what is no answer: {error}") from error
        if reply.error.code == "unavailable":
            raise MemoryUnavailable(reply.error.message)
        raise MemoryRefused(reply.error.message, not_found=reply.error.code == "not-found")


class MemoryServer:
    """Answers for one process of the service; replicas share the requests."""

    def __init__(self, nc: Client, topology: Topology, answers: dict[str, Answer]) -> None:
        """`answers` has one for each of VERBS; it raises CadreError for what cannot be done."""
        self._nc = nc
        self._topology = topology
        self._answers = answers
        self._subscriptions: list[Subscription] = []
        self._at_work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for verb in VERBS:
            subject = self._topology.memory(verb)
            self._subscriptions.append(await self._nc.subscribe(subject, queue=_QUEUE, cb=self._on_request))
        await settled(self._nc)

    async def drain(self, grace: float) -> None:
        """Takes no more requests; those at work have `grace` seconds."""
        for subscription in self._subscriptions:
            if self._nc.is_connected:
                try:
                    # What the server has handed to this replica already is still answered.
                    await subscription.drain()  # type: ignore[no-untyped-call]
                except nats.errors.Error as error:
                    log.warning("requests that were on their way are not answered: %s", error)
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=grace)
        for task in self._at_work:
            task.cancel()

    async def _on_request(self, message: Msg) -> None:
        # Each for itself: a long removal holds up no search.
        task = asyncio.create_task(self._answer(message), name=message.subject)
        self._at_work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s failed, and nobody was answered", task.get_name(), exc_info=error)

    async def _answer(self, message: Msg) -> None:
        if not message.reply:
            return
        reply = await self._reply(message)
        data = msgspec.json.encode(reply)
        if len(data) > self._nc.max_payload:
            refused = Refused("invalid", "the answer is too large for one message: ask for fewer at once")
            data = msgspec.json.encode(Reply(error=refused))
        try:
            await self._nc.publish(message.reply, data)
        except nats.errors.Error as error:
            log.warning("%s not answered: %s", message.subject, error)

    async def _reply(self, message: Msg) -> Reply:
        verb = message.subject.rpartition(".")[2]
        try:
            asked = msgspec.json.decode(message.data, type=VERBS[verb][0])
            answer = await self._answers[verb](asked)
        except _UNREADABLE as error:
            return Reply(error=Refused("invalid", f"memory {verb}: {error}"))
        except MemoryRefused as error:
            return Reply(error=Refused("not-found" if error.not_found else "invalid", str(error)))
        except CadreError as error:
            log.warning("%s: %s", message.subject, error)
            return Reply(error=Refused("unavailable", str(error)))
        return Reply(ok=msgspec.Raw(msgspec.json.encode(answer)))
