"""The steps of a run: what its model reads again, and the calls that each action has made.

Everything in them can be written as JSON. `cadre.engine.fold` is the only place that changes one.
"""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cadre.protocol.messages import ErrorInfo, PersonsAnswer, Resumption, Unfinished, round_id
from cadre.protocol.policy import PassedValue
from cadre.protocol.usage import Budget, Usage

if TYPE_CHECKING:
    from cadre.journal.parts import KindStep

    AnyKindStep = KindStep  # at run time, `unions.close` sets it

CallKind = Literal["tool", "member", "refused", "question"]
"""The target of a call: a tool, a team member, a person with a question of the agent's kind, or nothing callable."""


class ApprovalHold(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call's wait for a person: its reason and its end (Unix seconds; None: for ever)."""

    reason: str
    since: int
    at: float
    expires_at: float | None = None
    rule: str = ""
    """Name of the policy's rule that holds it."""
    by: list[str] = []
    """Names of keys, and roles, that may decide; []: everybody who may."""


class CallPause(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pause of a call that has begun: its reason and its end (Unix seconds; None: until a person has answered)."""

    unfinished: Unfinished
    since: int
    until: float | None = None
    answer: PersonsAnswer | None = None


class Correction(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The model's request before a person changed it."""

    name: str
    arguments: dict[str, Any] = {}
    feedback: str = ""


class Passed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a manager's run that a member's policies may use."""

    asked: int = 0
    """The number of texts of people that the manager knew."""
    values: list[PassedValue] = []
    """Values in the member's task whose origin the manager knows."""
    plan: list[str] | None = None
    """The tools that the member may count as planned; None: it makes a plan itself."""
    has_read: bool = False
    """The manager has read what strangers may have written."""


class CallState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call of a step, open until it has an observation."""

    id: str
    name: str
    kind: CallKind
    arguments: dict[str, Any] = {}
    opened: int = 0
    """Entry of the journal that made the call owed; 0 while it is held back or waits its turn."""
    opened_at: float = 0.0
    due: float | None = None
    """The time at which it has taken too long (Unix seconds)."""
    hold: ApprovalHold | None = None
    pause: CallPause | None = None
    resumes: Resumption | None = None
    """The point that it goes on from, if it was unfinished."""
    correction: Correction | None = None
    budget: Budget | None = None
    """The child's share."""
    passes: Passed | None = None
    """The part of this run that the member's policies may use."""
    check: bool = False
    """The agent had its answer checked by it: the model has not made this call and does not read it."""
    observation: str | None = None
    error: ErrorInfo | None = None

    @property
    def is_open(self) -> bool:
        return self.observation is None and self.error is None

    @property
    def message(self) -> str:
        """Return the id of the message that has a tool run it, or go on with it; of a member, its run."""
        return round_id(self.id, self.resumes.round if self.resumes is not None else 0)


class TaskStep(msgspec.Struct, kw_only=True, tag="task", omit_defaults=True):
    """The task, as the model reads it."""

    task: str
    images: list[str] = []
    delegated: bool = False
    """The task came from a manager: it is shown through the `managed_agent.task` prompt."""
    asked: list[str] | None = None
    """The parts of it that people wrote, if others wrote the rest; None: all of it, or nothing if it was delegated."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something kept from earlier work, as the memory service gave it."""

    text: str
    agent: str = ""
    run: str = ""
    scope: str = ""
    at: float = 0.0
    """The time at which it was kept, in Unix seconds."""


class RecalledStep(msgspec.Struct, kw_only=True, tag="recalled", omit_defaults=True):
    """The memories that the memory service found for the task when the run began."""

    memories: list[Memory]


class PlanningStep(msgspec.Struct, kw_only=True, tag="planning", omit_defaults=True):
    """A plan that the model made."""

    plan: str
    first: bool = True
    usage: Usage = Usage()
    """Of the model call that wrote it."""


class ActionStep(msgspec.Struct, kw_only=True, tag="action", omit_defaults=True):
    """A step that the model took, with its calls and their outcomes."""

    number: int
    content: str = ""
    calls: list[CallState] = []
    native: bool = True
    """The model returned tool calls itself; else they were read from its text."""
    items: list[dict[str, Any]] = []
    """The endpoint's other items, besides the text and the calls, as in `model.answered`."""
    items_of: str = ""
    """The endpoint and model that gave them, as in `model.answered`."""
    images: list[str] = []
    """`blob:` references of what tools showed, in their order."""
    own: "AnyKindStep | None" = None
    """The part of the step that the agent's kind keeps in addition to its calls."""
    error: ErrorInfo | None = None
    interrupted: bool = False
    """The run ended before the step did."""
    started_at: float = 0.0
    ended_at: float = 0.0
    entry: int = 0
    """Entry of this run's journal that ended it; 0 for a step of another run."""
    usage: Usage = Usage()
    """Of the model call that it began with."""

    @property
    def asked(self) -> list[CallState]:
        """The calls that the model, or its code, has made."""
        return [call for call in self.calls if not call.check and call.kind != "question"]


class AnswerStep(msgspec.Struct, kw_only=True, tag="answer", omit_defaults=True):
    """The answer of a finished run, as later turns of its session remember it."""

    output: Any


class MessageStep(msgspec.Struct, kw_only=True, tag="message", omit_defaults=True):
    """A person's message to the run while it was under way."""

    text: str
    sender: str = ""


Step = TaskStep | RecalledStep | PlanningStep | ActionStep | AnswerStep | MessageStep


def is_fresh(steps: list[Step]) -> bool:
    """Nothing has been done yet."""
    return all(isinstance(step, TaskStep | RecalledStep | MessageStep) for step in steps)
