"""Where a warm interpreter stands, and whether a CodeCall asks for just what comes next there."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from cadre.delivery.code_history import Place, shortened
from cadre.delivery.codec import encode
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded

Answer = CodeYielded | CodeFinished


def mark_of(call: CodeCall) -> str:
    """The same for all calls that ask for the same, however much of the past they carry themselves."""
    place, _ = shortened(call.block, Place(call.before, call.earlier, call.exchanges))
    return hashlib.sha256(encode([call.block, call.code, call.snapshot, *place])).hexdigest()


def resumes(call: CodeCall, served: CodeCall, answer: Answer) -> bool:
    """The block waits in the interpreter for exactly these replies."""
    if not isinstance(answer, CodeYielded) or call.block != served.block or call.done != served.done + 1:
        return False
    made = CodeExchange(calls=answer.calls, replies=call.exchanges[-1].replies, clock=answer.clock)
    return mark_of(call) == mark_of(replace(served, exchanges=[*served.exchanges, made]))


def follows(call: CodeCall, answer: Answer) -> bool:
    """The interpreter is between blocks, and has the variables that the call asks for."""
    return isinstance(answer, CodeFinished) and call.snapshot == answer.snapshot
