"""Handing a run's code to the process that keeps its interpreter warm: the delivery itself changes hands.

Whoever is delivered a call for an interpreter that it has not asks for who has, by a core request to a subject of the
run. Without one the server says so at once. The one that takes it over says so, acks in the other's stead, and gives
its signs of life: should it die, the message comes back as that of any dead worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.queue import Delivery
from cadre.protocol.topology import Topology, tree_of

log = logging.getLogger("cadre.sandbox")

_ANSWER_SECONDS = 1.0
"""To say whether it takes it; a process that is slower is no gain."""

_TRIES = 3
_TAKEN, _NOT_TAKEN = b"+", b"-"
_ACK, _SUBJECT = "Cadre-Ack", "Cadre-Subject"

Take = Callable[[Delivery], Awaitable[bool]]
"""Takes the delivery over, or says that it does not."""


class NatsWarm:
    """One process's warm interpreters, where others find them."""

    def __init__(self, nc: Client, topology: Topology, pool: str, take: Take) -> None:
        self._nc = nc
        self._topology = topology
        self._pool = pool
        self._take = take
        self._heard: dict[str, Subscription] = {}

    async def listen(self, run: str) -> None:
        """Others hand over what comes for the run from now on."""
        if run in self._heard or not self._nc.is_connected:
            return
        # Of several that keep one, whatever they keep, one is asked.
        self._heard[run] = await self._nc.subscribe(self._subject(run), queue="warm", cb=self._asked)

    async def forget(self, run: str) -> None:
        heard = self._heard.pop(run, None)
        if heard is not None and not self._nc.is_closed:
            await heard.unsubscribe()

    async def offer(self, delivery: Delivery, run: str) -> bool:
        """Whether another process has taken the delivery over: then it is no affair of this one any more."""
        headers = {_ACK: delivery.reply, _SUBJECT: delivery.subject}
        for _ in range(_TRIES):
            try:
                answer = await self._nc.request(
                    self._subject(run), delivery.data, timeout=_ANSWER_SECONDS, headers=headers
                )
            except nats.errors.Error:
                return False  # nobody keeps one; or whoever does is too slow, and may even do it twice
            if answer.data == _TAKEN:
                return True
            # It does no longer stand where the call goes on, and has left the subject: there may be a second.
        return False

    async def _asked(self, message: Msg) -> None:
        headers = message.headers or {}
        inner = Msg(self._nc, headers.get(_SUBJECT, ""), headers.get(_ACK, ""), message.data)
        taken = False
        if inner.reply.startswith("$JS.ACK."):
            taken = await self._take(Delivery(self._nc, inner))
        log.debug("%s was offered: %s", inner.subject, "taken" if taken else "not taken")
        await message.respond(_TAKEN if taken else _NOT_TAKEN)

    def _subject(self, run: str) -> str:
        return self._topology.warm(self._pool, tree_of(run), run)
