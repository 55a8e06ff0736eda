"""The state of a run: what folding its journal gives, and what a snapshot holds.

Everything in it can be written as JSON. `cadre.loop.fold` is the only place that changes it.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.code import CodeExchange, CodeReply, CodeRequest
from cadre.protocol.messages import Budget, ErrorInfo, RunState, Task, Usage
from cadre.spec.agent import AgentSpec

Purpose = Literal["act", "plan", "final", "summary"]
"""Why a model is asked: for the next action, for a plan, for an answer after the last step, or for a summary of
earlier steps that have no room in its context any more."""


class Phase(enum.Enum):
    NEW = "new"
    """No task yet."""
    THINKING = "thinking"
    """A model call is in flight."""
    WAITING = "waiting"
    """The model endpoint asked for time; a timer is set."""
    ACTING = "acting"
    """Calls of tools and team members are open."""
    DONE = "done"


class Hold(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why a call waits for a person, and until when (Unix seconds; None: for ever)."""

    reason: str
    since: int
    at: float
    expires: float | None = None


class Correction(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the model had asked for before a person changed it."""

    name: str
    arguments: dict[str, Any] = {}
    feedback: str = ""


class CallState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call of a step, open until it has an observation."""

    id: str
    name: str
    kind: Literal["tool", "member", "refused"]
    arguments: dict[str, Any] = {}
    opened: int = 0
    """Entry of the journal that made the call owed; 0 while it is held back or waits its turn."""
    opened_at: float = 0.0
    due: float | None = None
    """When it has taken too long (Unix seconds)."""
    hold: Hold | None = None
    correction: Correction | None = None
    budget: Budget | None = None
    """The child's share."""
    check: bool = False
    """The agent had its answer checked by it: the model has not made this call and does not read it."""
    observation: str | None = None
    error: ErrorInfo | None = None

    @property
    def is_open(self) -> bool:
        return self.observation is None and self.error is None


class CodeInWork(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The block of code of the step in work."""

    block: str
    code: str
    since: int = 0
    """Entry that made the sandbox owe the next outcome; 0 while the block waits for calls."""
    at: float = 0.0
    exchanges: list[CodeExchange] = []
    asked: list[CodeRequest] = []
    """Calls that it waits for, in their order."""
    clock: list[float] = []
    calls: list[str] = []
    """Ids of those calls."""
    replies: dict[str, CodeReply] = {}
    """By id, as far as they have come."""


class TaskStep(msgspec.Struct, kw_only=True, tag="task", omit_defaults=True):
    task: str
    images: list[str] = []
    delegated: bool = False
    """The task came from a manager: it is shown through the `managed_agent.task` prompt."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something kept from earlier work, as the memory service gave it."""

    text: str
    agent: str = ""
    run: str = ""
    scope: str = ""
    at: float = 0.0
    """When it was kept, Unix seconds."""


class RecalledStep(msgspec.Struct, kw_only=True, tag="recalled", omit_defaults=True):
    """What the memory service found for the task when the run began."""

    memories: list[Memory]


class PlanningStep(msgspec.Struct, kw_only=True, tag="planning", omit_defaults=True):
    plan: str
    first: bool = True
    usage: Usage = Usage()
    """Of the model call that wrote it."""


class ActionStep(msgspec.Struct, kw_only=True, tag="action", omit_defaults=True):
    number: int
    content: str = ""
    calls: list[CallState] = []
    native: bool = True
    """The model returned tool calls itself; else they were read from its text."""
    code: str | None = None
    """The block that the model wrote, for an agent of kind `code`."""
    observation: str | None = None
    """What the block printed and gave."""
    images: list[str] = []
    """`blob:` references of what tools showed, in their order."""
    snapshot: str | None = None
    """`blob:` reference of the variables after it."""
    error: ErrorInfo | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    entry: int = 0
    """Entry of this run's journal that ended it; 0 for a step of another run."""
    usage: Usage = Usage()
    """Of the model call that it began with."""

    @property
    def asked(self) -> list[CallState]:
        """The calls that the model, or its code, has made."""
        return [call for call in self.calls if not call.check]


class AnswerStep(msgspec.Struct, kw_only=True, tag="answer", omit_defaults=True):
    """The answer of a finished run, as later turns of its session remember it."""

    output: Any


Step = TaskStep | RecalledStep | PlanningStep | ActionStep | AnswerStep


class Postponed(msgspec.Struct, frozen=True):
    """The model call that a summary makes room for."""

    purpose: Purpose
    attempt: int = 1


class Summary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What stands for the first steps of a run's memory when its model reads it."""

    text: str
    covers: int
    """How many steps of the memory; the task among them is still read as it is."""
    step: int
    attempt: int
    """Of the model call that wrote it."""


class Recalling(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The memory service is asked before the run's first model call."""

    call: str
    query: str
    count: int
    since: int
    at: float
    due: float
    """When the run begins without an answer (Unix seconds)."""


class Proposal(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An answer that waits for the tools that check it."""

    answer: Any
    step: int
    checks: dict[str, str]
    """Tool by the id of its call."""
    arguments: dict[str, Any] | None = None
    problems: dict[str, str] = {}
    """By call, as far as they are over: why the answer did not pass, "" when it did."""


def is_fresh(memory: list[Step]) -> bool:
    """Nothing has been done yet."""
    return all(isinstance(step, TaskStep | RecalledStep) for step in memory)


class ModelInFlight(msgspec.Struct, kw_only=True):
    purpose: Purpose
    step: int
    attempt: int
    cause: str
    since: int
    """Entry of the journal that began it."""
    at: float
    then: Postponed | None = None


class Deferral(msgspec.Struct, kw_only=True):
    """Why and until when the run waits for its model endpoint."""

    timer: str
    until: float
    since: int
    purpose: Purpose
    step: int
    attempt: int
    at: float = 0.0
    """When the wait began."""
    cause: str = ""
    """The inbox record whose model call was put off, and whose worker sees to the timer."""
    then: Postponed | None = None


class Repeated(msgspec.Struct, kw_only=True):
    """How often in a row one call had one outcome; both as digests."""

    outcome: str
    times: int = 1


class Revoked(msgspec.Struct, kw_only=True):
    """A call that was sent and whose answer nobody awaits any more: whoever works at it is told to stop."""

    call: str
    name: str
    kind: Literal["tool", "member", "refused"]
    since: int
    at: float
    reason: str


class Result(msgspec.Struct, kw_only=True):
    state: RunState
    output: Any = None
    error: ErrorInfo | None = None
    since: int
    at: float


class Run(msgspec.Struct, kw_only=True):
    id: str
    tree: str
    agent: str = ""
    phase: Phase = Phase.NEW
    entries: int = 0
    """Entries applied so far."""
    spec: AgentSpec | None = None
    task: Task | None = None
    tools: dict[str, ToolCard] = {}
    members: dict[str, AgentCard] = {}
    missing: list[str] = []
    memory: list[Step] = []
    """Finished steps, the task first."""
    recalling: Recalling | None = None
    base: int = 0
    """Tokens of a request besides the memory: instructions, tools, the longest of the fixed prompts."""
    weight: int = 0
    """Tokens of the memory as the model reads it, the step in work included."""
    scale: float = 1.0
    """How many times as much as estimated its model last counted; never less than 1."""
    tight: int = 0
    """Requests that the endpoint refused as too long."""
    refused: int | None = None
    """Tokens, as estimated, of the smallest of them."""
    summary: Summary | None = None
    current: ActionStep | None = None
    code: CodeInWork | None = None
    proposal: Proposal | None = None
    snapshot: str | None = None
    """`blob:` reference of the variables that the code has left."""
    inherited: str | None = None
    """What `snapshot` was when the run began: that of the run which it goes on from."""
    step: int = 0
    """Number of the step in work, from 1."""
    model: ModelInFlight | None = None
    deferral: Deferral | None = None
    failures: int = 0
    """Failed tries of the model call in work that were no rate limit."""
    troubled_since: float | None = None
    """When the model call in work first failed."""
    usage: Usage = Usage()
    deadline: float | None = None
    budget: Budget | None = None
    unpriced: str | None = None
    """A model that was asked and has no price."""
    repeated: dict[str, Repeated] = {}
    """The latest calls, by digest, oldest first."""
    refusals: int = 0
    """Calls refused because they led nowhere before."""
    revoked: list[Revoked] = []
    strays: dict[str, Budget | None] = {}
    """Members that nobody waits for any more, and what they were lent: they have not told yet what they used."""
    result: Result | None = None
    cancelled: str | None = None
    """Why somebody asked for the run's end."""
    seen: set[str] = set()
    """Ids of all records accounted for."""
    started_at: float = 0.0
    accepted: int = 0
    """Entry that holds the task."""

    @property
    def max_steps(self) -> int:
        if self.task is not None and self.task.max_steps is not None:
            return self.task.max_steps
        return self.spec.limits.max_steps if self.spec else 0

    @property
    def parent(self) -> str | None:
        return self.task.reply_to.run if self.task and self.task.reply_to else None

    def open_calls(self) -> list[CallState]:
        return [call for call in self.current.calls if call.is_open] if self.current else []
