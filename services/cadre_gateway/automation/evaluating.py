"""The process that decides on ticks and renders the tasks of triggers, one request after the other.

Both evaluate what people wrote, over values that anybody sent. Here nothing else waits for it, and the gateway can end
it. It ends with the gateway: by the end of its input when it waits, by a signal when it works.
"""

import signal
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

import msgspec

from cadre.automation.schedule_state import ScheduleState, decide
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError

LENGTH = struct.Struct(">I")
"""Each frame begins with the number of bytes that follow."""

ABANDONED_SECONDS = 60
"""Seconds at one request after which the process ends itself: a gateway that was killed cannot end it any more."""


class DecideTick(msgspec.Struct, frozen=True, tag="decide"):
    """A request to decide what becomes of a schedule now. See `schedule_state.decide`."""

    state: ScheduleState
    now: float
    busy: bool


class FillTask(msgspec.Struct, frozen=True, tag="fill"):
    """A request for the task of a message. See `TriggerSpec.task_for`."""

    spec: TriggerSpec
    payload: bytes
    message: str
    subject: str


class Evaluated(msgspec.Struct, frozen=True):
    """The answer to a request: one of the first two, or the reason why neither exists."""

    state: ScheduleState | None = None
    task: str = ""
    failure: str = ""


def framed(message: msgspec.Struct) -> bytes:
    """Return the message as JSON, with its length before it."""
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


def evaluated(request: DecideTick | FillTask) -> Evaluated:
    """Return the answer to a request."""
    try:
        if isinstance(request, DecideTick):
            return Evaluated(decide(request.state, request.now, request.busy))
        return Evaluated(task=request.spec.task_for(request.payload, request.message, request.subject))
    except SpecError as error:
        return Evaluated(failure=str(error))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until no more come."""
    decoder = msgspec.json.Decoder(DecideTick | FillTask)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        request = decoder.decode(requests.read(LENGTH.unpack(head)[0]))
        signal.alarm(ABANDONED_SECONDS)
        answers.write(framed(evaluated(request)))
        answers.flush()
        signal.alarm(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway
    with suppress(BrokenPipeError):  # the gateway is gone
        serve(sys.stdin.buffer, sys.stdout.buffer)
