"""The jailed interpreter: one namespace that lasts, one block after the other."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

from cadre_sandbox.jail import snapshot
from cadre_sandbox.jail.block import Block
from cadre_sandbox.jail.builtins_for_code import Builtins
from cadre_sandbox.jail.capture import Printed
from cadre_sandbox.jail.channel import Channel
from cadre_sandbox.jail.functions import Later
from cadre_sandbox.jail.jail import Layers, lower_limits
from cadre_sandbox.jail.snapshot import Keeper
from cadre_sandbox.jail.stopwatch import Stopped, Stopwatch
from cadre_sandbox.wire.exit_codes import NO_MEMORY, NO_TIME
from cadre_sandbox.wire.frames import Frame

_RESERVE = 4 << 20
"""Bytes let go when the memory is full, so that this can be said."""

_THREAD_STACK = 1 << 20
"""Bytes; the default of 8 MB is meant for address space without limit."""


class Interpreter:
    """What the blocks of one run share."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.printed = Printed()
        self.stopwatch = Stopwatch()
        self.builtins = Builtins()
        self.keeper = Keeper(self.builtins.imported)
        self.reserve = b""
        self.last_digest = b""
        self.block: Block | None = None
        # Its name makes picklers take the code's classes by value.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = self.builtins.names
        snapshot.use(self.namespace)

    def serve(self, layers: Layers) -> None:
        """Until the outside closes the channel, which ends the process."""
        sys.stdout = sys.stderr = self.printed
        self.stopwatch.install()
        self.channel.send({"kind": "ready", **layers.as_json()})
        while True:
            self._serve(self.channel.receive())

    def call(self, calls: Sequence[Later]) -> list[Any]:
        """Whichever block a function was kept from, it is the one at work that calls."""
        assert self.block
        return self.block.call(calls)

    def final_answer(self, answer: Any = None) -> None:
        assert self.block
        self.block.final_answer(answer)

    def _serve(self, frame: Frame) -> None:
        lower_limits(frame.header.get("bounds", {}))
        threading.stack_size(_THREAD_STACK)
        try:
            self.reserve = self.reserve or bytes(_RESERVE)
            Block(self, frame).run()
        except MemoryError:
            # Too little is left even to say so in a frame.
            os._exit(NO_MEMORY)
        except Stopped:
            os._exit(NO_TIME)


def serve(descriptor: int, layers: Layers) -> None:
    Interpreter(Channel(descriptor)).serve(layers)
