"""The jail's end of the socket: one frame in, one out; when the outside has gone, so has the interpreter."""

import os
from collections.abc import Sequence
from typing import Any

from cadre_sandbox.wire.frames import PREFIX, Frame, decode, encode

_READ_BYTES = 1 << 20


class Channel:
    """The socket by which the jailed interpreter is asked and answers."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def receive(self) -> Frame:
        """The next frame. Ends the process when the outside has closed its end."""
        text, body = PREFIX.unpack(self._read(PREFIX.size))
        return decode(self._read(text), self._read(body))

    def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Send a frame."""
        left = memoryview(encode(header, blobs))
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = os.read(self._descriptor, min(_READ_BYTES, size - len(data)))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)
