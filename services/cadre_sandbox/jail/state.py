"""What lasts from block to block in a jailed interpreter, its end of the socket to the outside among it."""

import os
import sys
import types
from collections.abc import Sequence
from typing import Any

from cadre_sandbox.jail import snapshot
from cadre_sandbox.jail.capture import CapturedOutput
from cadre_sandbox.jail.refusal import Builtins
from cadre_sandbox.jail.stopwatch import Stopwatch
from cadre_sandbox.wire.frames import PREFIX, Frame, decode, encode

_READ_BYTES = 1 << 20


class Channel:
    """The socket by which the jailed interpreter is asked and answers: one frame in, one out."""

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


class InterpreterState:
    """The variables of the code, and what the interpreter itself keeps beside them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.printed = CapturedOutput()
        self.stopwatch = Stopwatch()
        self.builtins = Builtins()
        self.snapshots = snapshot.Snapshots(self.builtins.imported)
        self.reserve = b""
        """Memory that is let go when all of it is taken, so that this can be said."""
        self.last_digest = b""
        """Digest of the snapshot that was sent last."""

        # Its name makes picklers take the code's classes by value.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = self.builtins.names
        snapshot.use_namespace(self.namespace)
