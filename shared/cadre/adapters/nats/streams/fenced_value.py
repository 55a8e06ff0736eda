"""One value on its own subject in a stream: replaced by compare-and-set, or claimed once, like the generation in which
the run of a key begins."""

import asyncio
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.errors import BusUnavailable, Fenced
from cadre.protocol.topology import Topology

T = TypeVar("T")


class FencedValue(Generic[T]):
    """The last message on `subject`, as a value of the message type or union `kind`.

    The value's fence is the sequence of its message: a writer names the fence of the value that it replaces. `headers`
    go with every write.
    """

    def __init__(
        self, nc: Client, stream: str, subject: str, kind: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        self._nc = nc
        self._stream = stream
        self._subject = subject
        self._kind = kind
        self._headers = headers

    async def read(self) -> tuple[T | None, int]:
        """Return the value and its fence, never stale: None and 0 when it does not exist, None and a fence when it was
        emptied. Raises BusUnavailable, UnreadableMessage."""
        held = await jetstream.last(self._nc, self._stream, self._subject)
        if held is None:
            return None, 0
        return (decode(held.data, self._kind) if held.data else None), held.seq

    async def write(self, value: T, fence: int) -> int:
        """Replace the value at `fence` (0: it does not exist) and return the new fence. Raises Fenced,
        RetryableError."""
        return await jetstream.append(self._nc, self._subject, encode(value), expect=fence, headers=self._headers)


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
