"""The jailed interpreter: one namespace that lasts, one block after the other."""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from cadre_sandbox.jail.block import Block
from cadre_sandbox.jail.confinement.jail import Layers, lower_limits
from cadre_sandbox.jail.functions import DeferredCall
from cadre_sandbox.jail.state import Channel, InterpreterState
from cadre_sandbox.jail.stopwatch import Stopped
from cadre_sandbox.wire.frames import Frame
from cadre_sandbox.wire.jail_order import NO_MEMORY, NO_TIME

_RESERVE_BYTES = 4 << 20
"""Let go when the memory is full, so that this can be said."""

_THREAD_STACK_BYTES = 1 << 20
"""The default of 8 MB is meant for address space without limit."""


class Interpreter:
    """Runs the blocks of one run, one after the other."""

    def __init__(self, channel: Channel) -> None:
        self._state = InterpreterState(channel)
        self._block: Block | None = None

    def serve(self, layers: Layers) -> None:
        """Serve until the outside closes the channel, which ends the process."""
        state = self._state
        sys.stdout = sys.stderr = state.printed
        state.stopwatch.install()
        state.channel.send({"kind": "ready", **layers.as_json()})
        while True:
            self._run_block(state.channel.receive())

    def _run_block(self, frame: Frame) -> None:
        lower_limits(frame.header.get("bounds", {}))
        threading.stack_size(_THREAD_STACK_BYTES)
        try:
            self._state.reserve = self._state.reserve or bytes(_RESERVE_BYTES)
            self._block = Block(self._state, frame, self._call, self._final_answer)
            self._block.run()
        except MemoryError:
            # Too little is left even to say so in a frame.
            os._exit(NO_MEMORY)
        except Stopped:
            os._exit(NO_TIME)

    def _call(self, calls: Sequence[DeferredCall]) -> list[Any]:
        """Make the calls of a function, through the block that is running now even if an earlier one defined it."""
        assert self._block
        return self._block.call(calls)

    def _final_answer(self, *answer: Any, **named: Any) -> None:
        assert self._block
        self._block.final_answer(*answer, **named)


def serve(descriptor: int, layers: Layers) -> None:
    """Run blocks that come over the socket with this descriptor; never returns while the outside holds its end."""
    Interpreter(Channel(descriptor)).serve(layers)
