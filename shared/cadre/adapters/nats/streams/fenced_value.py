"""One value on a subject of its own in a stream, replaced by compare-and-set."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode

T = TypeVar("T")


class FencedValue(Generic[T]):
    """The last message on `subject`, as a value of the message type or union `kind`.

    The value's fence is the sequence of its message: whoever writes names the fence of what it replaces. `headers`
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
        """Returns the value and its fence, never stale: None and 0 when there is none, None and a fence when it was
        emptied. Raises BusUnavailable, UnreadableMessage."""
        held = await jetstream.last(self._nc, self._stream, self._subject)
        if held is None:
            return None, 0
        return (decode(held.data, self._kind) if held.data else None), held.seq

    async def write(self, value: T, fence: int) -> int:
        """Replaces the value at `fence` (0: there is none) and returns the new fence. Raises Fenced,
        RetryableError."""
        return await jetstream.append(
            self._nc, self._subject, encode(value), expect=fence, headers=self._headers
        )
