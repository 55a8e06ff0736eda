"""Runs of an agent that writes code, and what its sandbox answers, for tests of the kind `code`."""

from typing import Any

from cadre.engine.commands import Send
from cadre.protocol.code import CodeReply, CodeRequest
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, Decision, Verdict
from unit.loop.build import SimulatedRun, spec

BLOCK = "r1:code:1"
PLACE = {"tree": "r1", "run": "r1", "at": 2.0}
ANSWER_WITH_CODE = "Thought: add.\n<code>\nprint(add(a=1, b=2))\n"


def coder(**fields: Any) -> SimulatedRun:
    return SimulatedRun(spec(kind="code", **fields))


def begun(**fields: Any) -> SimulatedRun:
    """A run whose first block is with the sandbox."""
    sim = coder(**fields).begin(inputs={"limit": 3})
    sim.say(content=ANSWER_WITH_CODE)
    return sim


def yielded(*calls: CodeRequest, exchange: int = 0, block: str = BLOCK, **fields: Any) -> CodeYielded:
    place: dict[str, Any] = {**PLACE, "block": block, "exchange": exchange, **fields}
    return CodeYielded(id=f"{block}:{exchange}:yielded", calls=list(calls), **place)


def ended(exchange: int = 0, block: str = BLOCK, **fields: Any) -> CodeFinished:
    place: dict[str, Any] = {**PLACE, "block": block, "exchange": exchange, **fields}
    return CodeFinished(id=f"{block}:{exchange}:finished", **place)


def asks(name: str, **arguments: Any) -> CodeRequest:
    return CodeRequest(name, arguments)


def decision(verdict: Verdict, call: str = "r1_1_0", **fields: Any) -> Decision:
    return Decision(id="d", tree="r1", run="r1", at=3.0, call=call, verdict=verdict, **fields)


def code_call(sim: SimulatedRun, since: int = 0) -> CodeCall:
    """The one question to a sandbox that the run owes."""
    sent = [command.message for command in sim.owed(since) if isinstance(command, Send)]
    (found,) = [message for message in sent if isinstance(message, CodeCall)]
    return found


def replies(sim: SimulatedRun) -> list[CodeReply]:
    """Return what the sandbox learns of the first calls that the block waited for."""
    return code_call(sim).exchanges[0].replies
