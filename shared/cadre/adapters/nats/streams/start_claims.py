"""Claims of starts: in which generation of shards the run of a key begins, decided once, whatever each gateway knows.

A gateway that knows of one generation publishes the task of a keyed run only where no claim lies; one that knows of
more claims first and looks then. Both happen in the stream of the id of the first generation, which puts them in order.
"""

import asyncio

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable, Fenced
from cadre.protocol.topology import Topology

IN_FLIGHT_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds between tries of what is refused while something else is on its way to the same subject: a cluster does."""

_CLAIM_TTL = "168h"


class NatsStartClaims:
    """The claims of a deployment."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def claim(self, first: str, generation: int) -> int:
        """Claim the start of a key's run for a generation and return the one for which it is claimed: the first claim
        counts. `first` is the id of the run in the first generation. Raises RetryableError.

        A claim lasts for a week. By then no gateway is left that could not know of the generation, and the run itself
        is found in each."""
        subject, stream = self._topology.start_claim(first), self._topology.stream_of(first)
        headers = {jetstream.TTL: _CLAIM_TTL}
        for pause in (*IN_FLIGHT_PAUSES, 0.0):
            try:
                await jetstream.append(self._nc, subject, b"%d" % generation, expect=0, headers=headers)
            except Fenced:
                held = await jetstream.last(self._nc, stream, subject)
                if held is not None:
                    return int(held.data)
                await asyncio.sleep(pause)
            else:
                return generation
        raise BusUnavailable("claiming a start", "others claim it too")
