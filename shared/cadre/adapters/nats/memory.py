"""Asks the memory service over core NATS, and answers for it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.connection.requests import RequestServer, request_apart
from cadre.errors import CadreError, MemoryRefused, MemoryUnavailable
from cadre.protocol.memory import (
    ANSWERS,
    VERBS,
    ForgetRequest,
    Found,
    ImportedMemories,
    ImportRequest,
    Listed,
    ListRequest,
    MemoryProblem,
    MemoryReply,
    Receipt,
    SearchRequest,
    ShowRequest,
    Stats,
    StatsRequest,
)
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.memory")

ANSWER_SECONDS = 10.0
FORGET_SECONDS = 120.0
"""A large removal takes its time."""

_QUEUE = "memory"

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")

Answer = Callable[[Any], Awaitable[Any]]


class NatsMemory:
    """A client of the memory service, one method per verb. Every method raises MemoryUnavailable and MemoryRefused."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def search(self, asked: SearchRequest) -> Found:
        """Find the memories nearest to a text."""
        return await self._ask(Found, "search", asked)

    async def list(self, asked: ListRequest) -> Listed:
        """List memories, without expired ones, a page at a time."""
        return await self._ask(Listed, "list", asked)

    async def show(self, asked: ShowRequest) -> Listed:
        """Return the chunks of one memory, a page at a time."""
        return await self._ask(Listed, "show", asked)

    async def forget(self, asked: ForgetRequest) -> Receipt:
        """Remove one memory or a selection, or counts what that would remove."""
        return await self._ask(Receipt, "forget", asked, FORGET_SECONDS)

    async def export(self, asked: ListRequest) -> Listed:
        """List memories, with expired ones, a page at a time."""
        return await self._ask(Listed, "export", asked)

    async def import_all(self, asked: ImportRequest) -> ImportedMemories:
        """Keep chunks of an export."""
        return await self._ask(ImportedMemories, "import", asked)

    async def stats(self) -> Stats:
        """Count the memories and report how they are searched."""
        return await self._ask(Stats, "stats", StatsRequest())

    async def _ask(self, kind: type[T], verb: str, asked: Any, within: float = ANSWER_SECONDS) -> T:
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
            reply = msgspec.json.decode(message.data, type=MemoryReply)
            if reply.error is None:
                return msgspec.json.decode(reply.ok, type=kind)
        except _UNREADABLE as error:
            raise MemoryUnavailable(f"the memory service answered what is no answer: {error}") from error
        if reply.error.code == "unavailable":
            raise MemoryUnavailable(reply.error.message)
        raise MemoryRefused(reply.error.message, not_found=reply.error.code == "not-found")


class MemoryServer:
    """Answers requests to the memory service in one process; replicas share them."""

    def __init__(self, nc: Client, topology: Topology, answers: dict[str, Answer]) -> None:
        """Take an answer for each of VERBS, which raises CadreError for what cannot be done."""
        self._nc = nc
        self._answers = answers
        self._servers = [RequestServer(nc, topology.memory(verb), self._answer, queue=_QUEUE) for verb in VERBS]

    async def start(self) -> None:
        """Begin to answer; the server knows of it when this returns."""
        for server in self._servers:
            await server.start()
        await settled(self._nc)

    async def drain(self, grace: float) -> None:
        """Take no more requests; those at work have `grace` seconds."""
        await asyncio.gather(*(server.drain(grace) for server in self._servers))

    async def _answer(self, message: Msg) -> bytes:
        data = msgspec.json.encode(await self._reply(message))
        if len(data) > self._nc.max_payload:
            refused = MemoryProblem("invalid", "the answer is too large for one message: ask for fewer at once")
            data = msgspec.json.encode(MemoryReply(error=refused))
        return data

    async def _reply(self, message: Msg) -> MemoryReply:
        verb = message.subject.rpartition(".")[2]
        try:
            asked = msgspec.json.decode(message.data, type=VERBS[verb][0])
            answer = await self._answers[verb](asked)
        except _UNREADABLE as error:
            return MemoryReply(error=MemoryProblem("invalid", f"memory {verb}: {error}"))
        except MemoryRefused as error:
            return MemoryReply(error=MemoryProblem("not-found" if error.not_found else "invalid", str(error)))
        except CadreError as error:
            log.warning("%s: %s", message.subject, error)
            return MemoryReply(error=MemoryProblem("unavailable", str(error)))
        return MemoryReply(ok=msgspec.Raw(msgspec.json.encode(answer)))
