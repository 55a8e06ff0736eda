"""Count what one tool call crosses: calls of functions and files of the product, for who reads them.

`python -m bench.crossing` prints a line for the pure part of an answer and its result, and one for the whole tool call
through agent, executor and back, in one process with a stream in memory. `--list` adds the calls of each file.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

import cadre
from bench.instant import answer, call
from cadre import testing
from cadre.engine.model_request import ModelRequest
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.loop.arrival_of import entry_of
from cadre.loop.decide import decide
from cadre.loop.owed import owed
from cadre.ports import ModelReply, OnText
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import ToolResult
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec, Limits
from cadre.tool import tool

PRODUCT = Path(cadre.__file__).parent
NOT_CROSSED = PRODUCT / "testing"
"""It stands for NATS and for who plays the model: no run in production crosses it."""

STEPS = 3
"""Steps before the one that is counted, so that nothing in it happens for the first time."""


class Crossing:
    """The calls of the product's functions between `begin` and `end`, in all threads, by file."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def begin(self) -> None:
        """Count from here on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self) -> None:
        """Count no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PRODUCT)) and not file.startswith(str(NOT_CROSSED)):
            self.calls[file[len(str(PRODUCT)) + 1 :]] += 1

    def __str__(self) -> str:
        return f"{self.calls.total()} calls in {len(self.calls)} files"


def pure() -> Crossing:
    """Return what deciding on an answer with one call, and on its result, crosses: events, entry and commands."""
    card = ToolCard(name="add", description="Adds.", input_schema=_SCHEMA)
    spec = AgentSpec(name="boss", description="Leads.", tools=["add"], limits=Limits(max_steps=100, repeats=0))
    played = testing.SimulatedRun(spec, testing.Toolset(tools={"add": card})).begin()
    for number in range(STEPS):
        played.say(testing.call("add", a=number, b=1))
        played.arrive(testing.result(played.id(), tool="add", output=number))
    run, crossing = played.run, Crossing()
    assert run.model is not None
    reply = ModelReplied(
        attempt=run.model.attempt,
        content="",
        calls=[testing.call("add", a=9, b=77)],
        usage=Usage(input_tokens=10, output_tokens=1),
    )

    def arrives(what: ModelReplied | ToolResult, cause: str) -> None:
        arrival = Arrival(what=what, at=played.at, cause=cause, toolset=played.toolset, spec=spec)
        crossing.begin()
        events = decide(run, arrival, cause)
        entry = entry_of(run, arrival, events, cause)
        owed(run, since=entry.n)
        crossing.end()

    arrives(reply, run.model.cause)
    done: Any = testing.result(played.id(), tool="add", output="86")
    arrives(done, done.id)
    return crossing


class _Counted:
    """ports.Model: each answer calls the tool; the step after the first ones is counted."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing, self._asked = crossing, 0

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self._crossing.end()
        self._asked += 1
        if self._asked > STEPS + 1:
            return answer("added")
        reply = call("add", a=self._asked, b=1)
        if self._asked == STEPS + 1:
            self._crossing.begin()
        return reply


async def whole() -> Crossing:
    """Return what a call crosses from the model's answer to the next request: agent, executor, and back."""

    @tool
    def add(a: int, b: int) -> int:
        """Adds.

        Args:
            a: One number.
            b: Another one.
        """
        return a + b

    crossing = Crossing()
    spec = AgentSpec(name="boss", description="Leads.", tools=["add"], limits=Limits(max_steps=100, repeats=0))
    async with testing.Team([spec], [add], _Counted(crossing)) as team:
        await team.run("boss", "Add.")
    return crossing


_NUMBERS = {name: {"type": "integer"} for name in ("a", "b")}
_SCHEMA = {"type": "object", "properties": _NUMBERS, "required": ["a", "b"], "additionalProperties": False}


@click.command()
@click.option("--list", "is_listed", is_flag=True, help="Print the calls of each file as well.")
def main(is_listed: bool) -> None:
    """Count the calls and files of one tool call."""
    parts: dict[str, Callable[[], Crossing]] = {
        "an answer with a call and its result, pure": pure,
        "a tool call through agent, executor and back": lambda: asyncio.run(whole()),
    }
    for name, measure in parts.items():
        crossing = measure()
        click.echo(f"{name}: {crossing}")
        for file, calls in crossing.calls.most_common() if is_listed else ():
            click.echo(f"  {calls:4} {file}")


if __name__ == "__main__":
    main()
