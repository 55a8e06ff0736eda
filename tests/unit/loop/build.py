"""Specs, offers and records of one small team, for tests of the pure loop."""

from functools import partial
from typing import Any, TypeVar

import msgspec

from cadre import testing
from cadre.engine.commands import Send
from cadre.journal import events as ev
from cadre.journal.back_pointers import BackPointers
from cadre.loop.redecide import Journaled, Replay, redecide
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.testing import Offer, call, cancel, timer

__all__ = [
    "ANSWER",
    "OFFER",
    "SPEC",
    "Course",
    "Offer",
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
OFFER = Offer(tools={"add": ADD, "look": LOOK}, members={"kid": KID})


def spec(**fields: Any) -> AgentSpec:
    return msgspec.structs.replace(SPEC, **fields)


task = partial(testing.task, agent="boss")
result = partial(testing.result, tool="add")
report = partial(testing.report, agent="kid")

ANSWER = call("final_answer", answer="42")


class Course(testing.Course):
    """The course of a run of this team."""

    def __init__(
        self, spec: AgentSpec = SPEC, offer: Offer = OFFER, run: str = "r1", *, base: int = 0
    ) -> None:
        super().__init__(spec, offer, run, base=base)


def kinds(events: list[ev.AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def only(events: list[ev.AnyEvent], kind: type[Any]) -> Any:
    """The one event of that kind."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


def sent(course: Course, kind: type[Message], since: int = 0) -> list[Message]:
    """The messages of that kind which the run owes."""
    messages = [debt.message for debt in course.owed(since) if isinstance(debt, Send)]
    return [message for message in messages if isinstance(message, kind)]


def chained(journal: list[Journaled]) -> list[Journaled]:
    """With the back-pointers that the runner writes."""
    found: list[Journaled] = []
    pointers = BackPointers()
    for seq, entry in journal:
        found.append(Journaled(seq, msgspec.structs.replace(entry, prev=pointers.packed())))
        pointers.note(seq)
    return found


def replay_of(course: Course) -> Replay:
    return redecide([chained([Journaled(n, entry) for n, entry in enumerate(course.journal(), start=1)])])


def sound(course: Course) -> None:
    """Decided anew, the journal says the same."""
    replay = replay_of(course)
    assert (replay.divergences, replay.undecided) == ([], [])
