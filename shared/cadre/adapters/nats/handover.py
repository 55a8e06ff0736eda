"""Hands a run's code to the process that keeps its interpreter warm: the delivery itself changes hands.

A process that is delivered a call for an interpreter that it does not have asks the others, by a core request to a
subject of the run; the server answers at once when no process listens there. The process that takes the call over acks
it for the other, and sends its signs of life: if it dies, the message comes back as that of any dead worker.
"""

import logging
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.requests import RequestServer, request
from cadre.adapters.nats.queues.queue import NatsDelivery
from cadre.errors import NotPermitted
from cadre.protocol.topology import Topology, tree_of

log = logging.getLogger("cadre.sandbox")

_ANSWER_SECONDS = 1.0
"""To say whether it takes it; a process that is slower is no gain."""

_TRIES = 3
_TAKEN, _NOT_TAKEN = b"+", b"-"
_ACK, _SUBJECT = "Cadre-Ack", "Cadre-Subject"

Take = Callable[[NatsDelivery], Awaitable[bool]]
"""Takes the delivery over; returns False when it does not."""


class NatsHandover:
    """Offers deliveries to other processes' warm interpreters, and takes them over for those of this process."""

    def __init__(self, nc: Client, topology: Topology, pool: str, take: Take) -> None:
        self._nc = nc
        self._topology = topology
        self._pool = pool
        self._take = take
        self._listening: dict[str, RequestServer] = {}

    async def listen(self, run: str) -> None:
        """From now on others hand over what comes for the run."""
        if run in self._listening or not self._nc.is_connected:
            return
        # Of several processes that keep an interpreter, one is asked.
        server = RequestServer(self._nc, self._subject(run), self._answer, queue="warm")
        self._listening[run] = server
        await server.start()

    async def forget(self, run: str) -> None:
        """Listen for the run no more."""
        if (server := self._listening.pop(run, None)) is not None:
            await server.stop()

    async def hand_over(self, delivery: NatsDelivery, run: str) -> bool:
        """Return whether another process has taken the delivery over: then this one has nothing to do with it any
        more.
        """
        headers = {_ACK: delivery.reply, _SUBJECT: delivery.subject}
        for _ in range(_TRIES):
            try:
                answer = await request(self._nc, self._subject(run), delivery.data, headers, _ANSWER_SECONDS)
            except (nats.errors.Error, NotPermitted):
                return False  # no process keeps one; or one that does is too slow, and the call may even run twice
            if answer.data == _TAKEN:
                return True
            # It does no longer stand where the call goes on, and has left the subject: there may be a second.
        return False

    async def _answer(self, message: Msg) -> bytes:
        headers = message.headers or {}
        inner = Msg(self._nc, headers.get(_SUBJECT, ""), headers.get(_ACK, ""), message.data)
        taken = False
        if inner.reply.startswith("$JS.ACK."):
            taken = await self._take(NatsDelivery(self._nc, inner))
        log.debug("%s was offered: %s", inner.subject, "taken" if taken else "not taken")
        return _TAKEN if taken else _NOT_TAKEN

    def _subject(self, run: str) -> str:
        return self._topology.warm(self._pool, tree_of(run), run)
