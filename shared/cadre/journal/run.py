"""The state of a run: what folding its journal gives, with its steps, which its model reads again.

Everything in it can be written as JSON. `cadre.engine.fold` is the only place that changes it.
"""

import enum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cadre.journal.facts import MetValues
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.messages import ErrorInfo, PersonsAnswer, Resumption, RunState, Task, Unfinished, round_id
from cadre.protocol.policy import PassedValue, Policy
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of

if TYPE_CHECKING:
    from cadre.journal.parts import KindState, KindStep

    AnyKindState = KindState  # at run time, `unions.close` sets both
    AnyKindStep = KindStep

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


SUMMARY = "summary"
"""The purpose of a model call for a summary of earlier steps that no longer fit in the model's context. All other
purposes are the words of the agent's kind (`Kind.purposes`)."""


class Phase(enum.Enum):
    """The present activity of a run."""

    NEW = "new"
    """No task yet."""
    THINKING = "thinking"
    """A model call is in flight."""
    WAITING = "waiting"
    """The model endpoint asked for time; a timer is set."""
    ACTING = "acting"
    """Calls of tools and team members are open."""
    DONE = "done"


class Postponed(msgspec.Struct, frozen=True):
    """The model call that a summary makes room for."""

    purpose: str
    attempt: int = 1


class Summary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A summary that stands for the first steps of a run when its model reads them."""

    text: str
    covers: int
    """The number of steps that it covers; the task among them is still read as it is."""
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
    """The time at which the run begins without an answer (Unix seconds)."""


class Proposal(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An answer that waits for the tools that check it."""

    answer: Any
    step: int
    checks: dict[str, str]
    """Tool by the id of its call."""
    arguments: dict[str, Any] | None = None
    problems: dict[str, str] = {}
    """By call, as far as they are over: why the answer did not pass, "" when it did."""


class KindWait(msgspec.Struct, kw_only=True):
    """A wait of the agent's kind."""

    until: float | None
    """Unix seconds; None: the clock does not end it."""
    since: int
    """Entry that began it."""
    signal: str | None = None
    """Name of the signal that ends it."""


class KeptSignal(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A signal that no wait has taken yet."""

    name: str
    payload: Any = None
    sender: str = ""


class ModelInFlight(msgspec.Struct, kw_only=True):
    """The model call that a run waits for."""

    purpose: str
    step: int
    attempt: int
    cause: str
    since: int
    """Entry of the journal that began it."""
    at: float
    postponed: Postponed | None = None


class Deferral(msgspec.Struct, kw_only=True):
    """A wait of the run for its model endpoint: its reason and its end."""

    timer: str
    until: float
    since: int
    purpose: str
    step: int
    attempt: int
    at: float = 0.0
    """The time at which the wait began."""
    cause: str = ""
    """The inbox record whose model call was put off, and whose worker sees to the timer."""
    postponed: Postponed | None = None


class ModelChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The model that a run asks once the first one has failed it; 0 is the agent's first, n its nth fallback."""

    fallback: int = 0
    at: float = 0.0
    """The time at which the run changed to it (Unix seconds)."""
    first: int = 0
    """The model that the call in work was made to at first: the order goes round to it."""
    tries_before: int = 0
    """Attempts of the call in work that went to other models."""


class Counted(msgspec.Struct, frozen=True):
    """One request in two measures."""

    estimate: int
    """Tokens by Cadre's own way of counting."""
    tokens: int
    """Tokens as its model, or the endpoint that refused it, has counted."""


class Repeated(msgspec.Struct, kw_only=True):
    """The number of times in a row that one call had one outcome; both as digests."""

    outcome: str
    times: int = 1
    step: int = 0
    """The step that has counted it last."""


class Revoked(msgspec.Struct, kw_only=True):
    """A call that was sent and whose answer is no longer awaited: its worker is asked to stop."""

    call: str
    name: str
    kind: CallKind
    since: int
    at: float
    reason: str
    round: int = 0
    resumes: Resumption | None = None
    """The point that an unfinished call would have gone on from: its executor is asked to leave things in order."""


class Result(msgspec.Struct, kw_only=True):
    """The result of a run that has ended."""

    state: RunState
    output: Any = None
    error: ErrorInfo | None = None
    since: int
    at: float
    found: str | None = None
    """The findings of a member that ended without an output: its manager reads them with the failure."""


class Run(msgspec.Struct, kw_only=True):
    """The state of a run: everything that its journal says."""

    id: str
    tree: str
    agent: str = ""
    phase: Phase = Phase.NEW
    entries: int = 0
    """Entries applied so far."""
    spec: AgentSpec | None = None
    decided_by: str = ""
    """Name of the kind that decides it; "" until it has begun."""
    kind_version: int = 1
    """The version of that kind."""
    revision: str = ""
    """Of the agent, as of the run's beginning."""
    prompts: str = ""
    """`blob:` reference of the prompts that it began with; "" if they were not kept."""
    task: Task | None = None
    tools: dict[str, ToolCard] = {}
    members: dict[str, AgentCard] = {}
    missing: list[str] = []
    checks_with_calls: list[str] = []
    """Tools that check its answers and take its calls as well."""
    steps: list[Step] = []
    """Finished steps, the task first."""
    recalling: Recalling | None = None
    fixed_tokens: int = 0
    """Tokens of a request besides the steps: instructions, tools, the longest of the fixed prompts."""
    tokens: int = 0
    """Tokens of the steps as the model reads them, the step in work included."""
    counted: Counted | None = None
    """The latest request for an action that was counted."""
    context: int | None = None
    """Tokens that the endpoint has said it takes, in and out together."""
    server: str = ""
    """Host and port of the endpoint that answered last."""
    worker: str = ""
    """The replica that made the model call that was answered last."""
    learned: dict[str, dict[str, Any]] = {}
    """By endpoint and model, the keys of its profile that refusals have taught."""
    overflows: int = 0
    """Requests that the endpoint refused as too long."""
    refused_tokens: int | None = None
    """Tokens, as estimated, of the smallest of them whose refusal did not say how much is too long."""
    summary: Summary | None = None
    current: ActionStep | None = None
    own: "AnyKindState | None" = None
    """The state that the agent's kind keeps in addition to the common state."""
    waits: dict[str, KindWait] = {}
    """The waits of the agent's kind, by name, the oldest first."""
    unread: list[MessageStep] = []
    """Messages that no model call has taken along yet, the oldest first; then they become steps."""
    messages: int = 0
    """Messages so far."""
    facts: MetValues | None = None
    """The values that it has met, and what it knows of them; None: no policy rules its calls."""
    signals: list[KeptSignal] = []
    """Signals that no wait has taken yet, the oldest first."""
    proposal: Proposal | None = None
    step: int = 0
    """Number of the step in work, from 1."""
    model: ModelInFlight | None = None
    deferral: Deferral | None = None
    failures: int = 0
    """Failed tries of the model call in work that were no rate limit."""
    failing_since: float | None = None
    """The time at which the model call in work first failed."""
    choice: ModelChoice | None = None
    """None for as long as the first model has answered."""
    usage: Usage = Usage()
    deadline: float | None = None
    budget: Budget | None = None
    grace: int = 0
    """Entry since which the run is beyond its deadline or budget, and only leaves things in order until `deadline`; 0:
    it is not."""
    unpriced: str | None = None
    """A model that was asked and has no price."""
    repeated: dict[str, Repeated] = {}
    """The latest calls, by digest, oldest first."""
    truncated: bool = False
    """True if a step came to nothing because its answer was cut off at the limit of tokens. With some chat templates an
    answer that must be a call never ends: from then on the model has the choice."""
    refused_repeats: int = 0
    """Calls refused because they led nowhere before."""
    revoked: list[Revoked] = []
    late_members: dict[str, Budget | None] = {}
    """Members that are no longer awaited, and what they were lent: they have not reported yet what they used."""
    result: Result | None = None
    cancelled: str | None = None
    """The reason given with the first request to end the run."""
    ends_now: bool = False
    """True if a person has asked for its end at once."""
    seen: set[str] = set()
    """Ids of all records accounted for."""
    started_at: float = 0.0
    accepted: int = 0
    """Entry that holds the task."""

    @property
    def max_steps(self) -> int:
        if self.task is not None and self.task.max_steps is not None:
            return self.task.max_steps
        if self.spec is None:
            return 0
        return facts_of(self.spec, self.decided_by).max_steps or self.spec.limits.max_steps

    @property
    def parent(self) -> str | None:
        return self.task.reply_to.run if self.task and self.task.reply_to else None

    @property
    def policies(self) -> list[list[Policy]]:
        """Return the policies of the agent, then those of each agent above, each agent's own together."""
        own = [self.spec.policies] if self.spec is not None and self.spec.policies else []
        standing = self.task.standing if self.task is not None else None
        return [*own, *(standing.policies if standing is not None else ())]

    def is_callers(self, name: str) -> bool:
        """Return whether the tool is a function of the run's caller."""
        return self.task is not None and any(tool.name == name for tool in self.task.terms.tools)

    def call(self, id_: str) -> CallState | None:
        """Return the call of the step in work that has this id; None without one."""
        for call in self.current.calls if self.current is not None else ():
            if call.id == id_:
                return call
        return None

    def open_calls(self) -> list[CallState]:
        calls = self.current.calls if self.current is not None else ()
        # As `CallState.is_open`, without a call of Python for each: every decision asks several times.
        return [call for call in calls if call.observation is None and call.error is None]
