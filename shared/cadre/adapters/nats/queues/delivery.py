"""A message that a durable consumer delivers: what it says, and how it is settled."""

from collections.abc import Awaitable, Callable

from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.topology import Topology


class NatsDelivery:
    """One delivery of one message, to be acked, handed back or given up."""

    def __init__(self, nc: Client, message: Msg) -> None:
        self._nc = nc
        self.reply = message.reply
        self.subject = message.subject
        self.data = message.data
        tokens = message.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.…, with domain and account hash before when long.
        at = 4 if len(tokens) < 11 else 6
        self.address = Topology.address(self.subject)
        """What the subject says of the message."""
        self.deliveries = int(tokens[at])
        self.seq = int(tokens[at + 1])
        self.headers: dict[str, str] = dict(message.headers or {})
        self.origin = int(self.headers.get(jetstream.PASSED_ON, self.seq))
        """Where the message lay first, if it was passed on."""
        self.retried = jetstream.RETRIED in (message.headers or ())
        self.imported = jetstream.IMPORTED in (message.headers or ())
        self.settled = False
        self.begun = False
        """Its turn has come: a handler is at it."""

    async def ack(self) -> None:
        """Says that the message is done with."""
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        """Hands the message back, to be delivered again after `delay` seconds."""
        await self._settle(b'-NAK {"delay":%d}' % int(delay * 1e9) if delay else b"-NAK")

    async def term(self, reason: str) -> None:
        """Gives the message up: it is never delivered again, and kept as a dead letter with the reason."""
        await self._settle(b"+TERM " + " ".join(reason.split()).encode()[:500])

    async def in_progress(self) -> None:
        """Gives a sign of life: without one the message goes to another replica after the ack wait."""
        await self._nc.publish(self.reply, b"+WPI")

    async def _settle(self, how: bytes) -> None:
        self.settled = True
        await self._nc.publish(self.reply, how)


Handler = Callable[[NatsDelivery], Awaitable[None]]
