"""Specs, offers and records of one small team, for tests of the pure loop."""

from functools import partial
from typing import Any, TypeVar

import msgspec

from cadre import testing
from cadre.engine.commands import Send
from cadre.journal import events as ev
from cadre.journal.entry import BackPointers
from cadre.loop.redecide import Journaled, Replay, redecide
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.testing import Toolset, call, cancel, timer

__all__ = [
    "ANSWER",
    "OFFER",
    "SPEC",
    "SimulatedRun",
    "Toolset",
    "call",
    "cancel",
    "chained",
    "kinds",
    "only",
    "replay_of",
    "report",
    "result",
    "sent",
    "sound",
    "spec",
    "task",
    "timer",
]

Message = TypeVar("Message")
SPEC = AgentSpec(name="boss", description="Leads.", tools=["add", "look"], team=["kid"])
ADD = ToolCard(
    name="add",
    description="Adds.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
LOOK = ToolCard(
    name="look",
    description="Looks.",
    input_schema={
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    },
)
KID = AgentCard(name="kid", description="Helps.")
OFFER = Toolset(tools={"add": ADD, "look": LOOK}, members={"kid": KID})


def spec(**fields: Any) -> AgentSpec:
    return msgspec.structs.replace(SPEC, **fields)


task = partial(testing.task, agent="boss")
result = partial(testing.result, tool="add")
report = partial(testing.report, agent="kid")

ANSWER = call("final_answer", answer="42")


class SimulatedRun(testing.SimulatedRun):
    """The course of a run of this team."""

    def __init__(self, spec: AgentSpec = SPEC, toolset: Toolset = OFFER, run: str = "r1", *, base: int = 0) -> None:
        super().__init__(spec, toolset, run, base=base)


def kinds(events: list[ev.AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def only(events: list[ev.AnyEvent], kind: type[Any]) -> Any:
    """The one event of that kind."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


def sent(sim: SimulatedRun, kind: type[Message], since: int = 0) -> list[Message]:
    """The messages of that kind which the run owes."""
    messages = [command.message for command in sim.owed(since) if isinstance(command, Send)]
    return [message for message in messages if isinstance(message, kind)]


def chained(journal: list[Journaled]) -> list[Journaled]:
    """With the back-pointers that the runner writes."""
    found: list[Journaled] = []
    pointers = BackPointers()
    for seq, entry in journal:
        found.append(Journaled(seq, msgspec.structs.replace(entry, prev=pointers.packed())))
        pointers.note(seq)
    return found


def replay_of(sim: SimulatedRun) -> Replay:
    return redecide([chained([Journaled(n, entry) for n, entry in enumerate(sim.journal(), start=1)])])


def sound(sim: SimulatedRun) -> None:
    """Decided again, the journal says the same."""
    replay = replay_of(sim)
    assert (replay.divergences, replay.undecided) == ([], [])
