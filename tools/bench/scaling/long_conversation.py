"""A turn of 100 tool calls of 5 kB in a conversation of 209,000 tokens, at which a history of whole requests ends:
what is stored of it, what its steps cost, and whether each request begins with the bytes of the one before."""

import asyncio
import time

import msgspec

from bench.processes import cpu_seconds
from bench.scaling.deployed import TEAM, agents, deployed, stored_bytes, tools
from bench.scaling.long_journal import Mark
from bench.scaling.recorded_model import recorded_model
from bench.scaling.table import Row, measure_each
from harness.stack import Gateway, Service

_TOKENS = (20_900, 209_000)
_CALLS = 100
_TURNS = 10
_STRETCH = 20
_WORD = "Here is something to think about. "
_CHARS_PER_TOKEN = 4

ROWS = {
    "before": Row("the conversation before", "kB", 0),
    "content": Row("what the turn adds to it: tasks, calls, results", "kB", 0),
    "stored": Row("what is stored for the turn", "kB", 0),
    "ratio": Row("… / what it adds", "", 2),
    "whole": Row("all of its requests together", "MB", 1),
    "first": Row(f"CPU of the agent per step, first {_STRETCH}", "ms", 2),
    "last": Row(f"… last {_STRETCH}", "ms", 2),
    "last_s": Row(f"time of a step, last {_STRETCH}", "ms", 1),
    "request": Row("the last request", "kB", 0),
    "requests": Row("requests of the turn", "", 0),
    "same": Row("… that begin with the whole conversation of the one before", "", 0),
    "around": Row("… whose tools and settings are the same bytes", "", 0),
}


class Seen:
    """Compares each request with the one before, byte by byte, and notes what the agent has spent."""

    def __init__(self) -> None:
        self.agent: Service | None = None
        self.marks: list[Mark] = []
        self.same = self.around = 0
        self._messages, self._rest = b"", b""

    def tell(self, body: bytes) -> None:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        messages = bytes(fields.pop("messages"))
        rest = body.replace(messages, b"")
        if self.agent is not None:
            self.marks.append(Mark(time.perf_counter(), cpu_seconds(self.agent.pid), len(body)))
            self.same += messages.startswith(self._messages[:-1] + b",")
            self.around += rest == self._rest
        self._messages, self._rest = messages, rest


def _measure(tokens: int) -> dict[str, float]:
    seen = Seen()
    with deployed() as stack, recorded_model(TEAM / "script.yaml", seen.tell) as url:
        stack.environment["CADRE_MODEL_URL"] = url
        [agent] = agents(stack, "reader")
        tools(stack)
        gateway = stack.open_gateway(1)
        _talked(gateway, tokens)
        before = asyncio.run(stored_bytes(stack))
        seen.agent = agent
        run = gateway.submit("reader", f"pages: {_CALLS}", session="long")
        result = gateway.finished(run, within=300)
        if result["output"] != "read" or len(seen.marks) != _CALLS + 1:
            raise RuntimeError(f"{len(seen.marks)} requests, and the run ended so: {result}")
        stored = asyncio.run(stored_bytes(stack)) - before
    first, last = seen.marks[: _STRETCH + 1], seen.marks[-_STRETCH - 1 :]
    content = seen.marks[-1].size - seen.marks[0].size
    return {
        "before": seen.marks[0].size / 1e3,
        "content": content / 1e3,
        "stored": stored / 1e3,
        "ratio": stored / content,
        "whole": sum(mark.size for mark in seen.marks) / 1e6,
        "first": (first[-1].agent - first[0].agent) * 1e3 / _STRETCH,
        "last": (last[-1].agent - last[0].agent) * 1e3 / _STRETCH,
        "last_s": (last[-1].at - last[0].at) * 1e3 / _STRETCH,
        "request": seen.marks[-1].size / 1e3,
        "requests": len(seen.marks) - 1,
        "same": seen.same - 1,
        "around": seen.around - 1,
    }


def _talked(gateway: Gateway, tokens: int) -> None:
    """Has a session of so many tokens, of each turn half from the person."""
    chars = tokens * _CHARS_PER_TOKEN // _TURNS
    for turn in range(_TURNS):
        answer = chars // 2
        task = f"chat of {answer} characters, turn {turn}. {_WORD * (chars // 2 // len(_WORD))}"
        gateway.answer("reader", task, session="long", reset=turn == 0)


def run() -> None:
    """Prints a column for each length of the conversation."""
    measure_each("long conversation", ROWS, {f"{one:,} tokens": one for one in _TOKENS}, _measure)
