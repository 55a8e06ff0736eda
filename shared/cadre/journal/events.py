"""The events of a run's journal, for ever: those that are common to all kinds of agents."""

from typing import Any, ClassVar, Literal

import msgspec

from cadre.journal.parts import JournalEvent
from cadre.journal.parts import RequestedCall as RequestedCall
from cadre.journal.run import Memory, Passed, Postponed, Step
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.code import BlobForm
from cadre.protocol.codes import EditRefusal, IgnoredCode
from cadre.protocol.messages import (
    CallEdit,
    ErrorInfo,
    FileInfo,
    MessageMode,
    RunState,
    Task,
    Unfinished,
    Verdict,
)
from cadre.protocol.usage import Budget, TokenUsage, Usage
from cadre.spec.agent import AgentSpec


class SignalReceived(JournalEvent, frozen=True, tag="signal.received"):
    """A signal from outside. It is kept until a wait takes it, the oldest of its name first."""

    name: str
    payload: Any = None
    sender: str = ""


class WaitStarted(JournalEvent, frozen=True, tag="wait.started"):
    """The agent's kind waits until `until` (Unix seconds), or for a signal, whichever comes first."""

    name: str
    until: float | None = None
    """None: the clock does not end the wait."""
    signal: str | None = None
    """Name of the signal that ends it."""


class WaitFinished(JournalEvent, frozen=True, tag="wait.finished"):
    """The wait is over; the events next to it say what follows."""

    name: str
    signal: str | None = None
    """Name of the signal that ended it; None: its time has come."""


class GraceStarted(JournalEvent, frozen=True, tag="grace.started"):
    """The run's deadline or budget is used up. Until `until` (Unix seconds) its kind leaves things in order, bound by
    neither; then the run ends."""

    error: ErrorInfo
    until: float


class CancelRequested(JournalEvent, frozen=True, tag="cancel.requested"):
    """A person wants the run to end: once it has made up for what it did, or `now`. Its open children are asked too."""

    reason: str = ""
    sender: str = ""
    now: bool = False


class RunAccepted(JournalEvent, frozen=True, tag="run.accepted"):
    """The task is this run's; it keeps the spec it began with."""

    task: Task
    spec: AgentSpec
    decided_by: str
    """Name of the kind that decides the run: the spec's, or another one where its sections say so."""
    kind_version: int = 1
    """The version of that kind."""
    history: list[Step] = []
    """Memory of the run that this one goes on from."""
    prefix: list[Step] = []
    """Steps of the run that this one was forked from; they follow the task."""
    deadline: float | None = None
    """Unix seconds: the earlier of the task's and the spec's."""
    budget: Budget | None = None
    """The narrower of the task's and the spec's, field by field."""
    fixed_tokens: int = 0
    """Tokens of a request besides the steps, when nothing is offered."""
    revision: str = ""
    """Of the agent, as it began the run: 12 hex digits over its spec and its prompts."""
    prompts: str = ""
    """`blob:` reference of the prompts that the run keeps; "" if they are those of the worker."""


class MemoryAsked(JournalEvent, frozen=True, tag="memory.asked"):
    """The run begins with a question to the memory service; `call` is the id of the tool call."""

    call: str
    query: str
    count: int


class MemoryRecalled(JournalEvent, frozen=True, tag="memory.recalled"):
    """The run has its memories of earlier work; `error` when it begins without."""

    call: str
    memories: list[Memory] = []
    degraded: str = ""
    """The reason why the search was not as good as it could be."""
    error: ErrorInfo | None = None
    executor: str = ""
    seconds: float = 0.0
    started_at: float | None = None


class ToolsetChanged(JournalEvent, frozen=True, tag="toolset.changed"):
    """The model may call these tools from now on, as the registry had them."""

    tools: list[ToolCard]
    members: list[AgentCard]
    missing: list[str] = []
    """Tools and team members that the spec names and no live service offers."""
    checks_with_calls: list[str] = []
    """Tools that check the run's answers and take its calls as well."""
    fixed_tokens: int = 0
    """Tokens of a request besides the steps, with this toolset."""


class ModelCalled(JournalEvent, frozen=True, tag="model.called"):
    """A model call begins. It belongs to the record `cause`, which stays un-acked until the answer is kept."""

    step: int
    cause: str = ""
    purpose: str = "act"
    attempt: int = 1
    postponed: Postponed | None = None
    """Of a summary: the call that it makes room for."""
    fallback: int = 0
    """The index of the model that is asked: 0 is the agent's first, n the nth of its fallbacks."""
    model: str = ""
    """Name of the model that is asked, where another was asked before."""
    reason: str = ""
    """The reason why the model that was asked before is not asked again."""


class ModelAnswered(JournalEvent, frozen=True, tag="model.answered"):
    """The model has answered: its text, the calls as it wrote them, and the tokens that its endpoint lists."""

    step: int
    purpose: str = "act"
    attempt: int = 1
    content: str = ""
    calls: list[RequestedCall] = []
    usage: TokenUsage = TokenUsage()
    model: str = ""
    finish_reason: str = ""
    seconds: float = 0.0
    context: int | None = None
    unpriced: bool = False
    """True if the price of this model is unknown."""
    items: list[dict[str, Any]] = []
    """The endpoint's other items, besides the text and the calls: reasoning, what its own tools did, citations."""
    cached_tokens: int = 0
    """Of the input tokens, those that the endpoint had cached."""
    reasoning_tokens: int = 0
    """Of the output tokens, those of reasoning."""
    response: str = ""
    """The id of the answer, where the endpoint gives one."""
    first_seconds: float | None = None
    """Seconds until the first piece of the answer came, where that is known."""
    server: str = ""
    """Host and port of the endpoint; "" where they are those of the answer before."""
    worker: str = ""
    """The replica that made the call; "" where it is that of the answer before."""
    endpoint: str = ""
    """The id of the endpoint and its model, to which `items` and `learned` belong; "" without either."""
    learned: dict[str, Any] = {}
    """Keys of its profile (`cadre.spec.model.Profile`) that refusals have taught."""
    raw: dict[str, Any] | None = None
    """The whole answer as the endpoint gave it, where a program asked: the program is given it again in each life."""


class ModelDeferred(JournalEvent, frozen=True, tag="model.deferred"):
    """The endpoint cannot answer now. A timer goes off at `until`."""

    step: int
    attempt: int
    until: float
    reason: str
    status: int | None = None
    rate_limited: bool = False


class ContextOverflowed(JournalEvent, frozen=True, tag="context.overflowed"):
    """The endpoint refused the request as too long: the run counts more carefully from now on."""

    step: int
    attempt: int
    reason: str
    context: int | None = None
    """Tokens that the endpoint takes, as it said."""
    tokens: int | None = None
    """Tokens of the request, as it said."""


class HistorySummarized(JournalEvent, frozen=True, tag="history.summarized"):
    """The model reads `text` in place of the first `covers` steps of the memory, but for the task."""

    step: int
    attempt: int
    text: str
    covers: int
    without_model: bool = False
    """No model wrote it: it holds each step in a line or two."""


class ApprovalRequested(JournalEvent, frozen=True, tag="approval.requested"):
    """A call is held back until a person decides, or until `expires_at` (Unix seconds). One of the kind `function` is
    answered by the program that started the run."""

    quoted: ClassVar[tuple[str, ...]] = ("reason", "text")
    call: str
    name: str
    kind: Literal["tool", "member", "question", "function"]
    arguments: dict[str, Any]
    reason: str
    expires_at: float | None = None
    rule: str = ""
    """Name of the policy's rule that holds it; "" where none does."""
    by: list[str] = []
    """Names of keys, and roles, that may decide; []: everybody who may."""
    text: str = ""
    """The tool's own sentence that asks for the call; "" where it has none."""


class ApprovalDecided(JournalEvent, frozen=True, tag="approval.decided"):
    """The first word on a held call. `tool.called` or `delegate.started` follows unless it was turned down."""

    call: str
    verdict: Verdict | Literal["expired"]
    feedback: str = ""
    sender: str = ""
    name: str | None = None
    """The name that is called instead, if it was corrected."""
    arguments: dict[str, Any] | None = None
    """The arguments of the call, if they were corrected."""
    edits: list[CallEdit] = []
    """The changes to the calls that a question proposed."""
    know: list[str] = []
    """Arguments whose values the run's policies know from here on."""
    trace: str | None = None
    """`traceparent` of what brought the decision."""


class PolicyDecided(JournalEvent, frozen=True, tag="policy.decided"):
    """The verdict of the run's policies on a call, whose own event follows."""

    call: str
    name: str
    """The tool or team member."""
    verdict: Literal["allow", "hold", "deny"]
    rules: list[str] = []
    """Names of the rules that it breaks."""
    watched: list[str] = []
    """Names of those of policies that only watch."""
    policy: str = ""
    """SHA-256 of all policies that rule the run."""
    origins: dict[str, list[str]] = {}
    """By argument: where its value first stood (`task`, `trusted` …), the call that brought it, and the place in that
    call's result."""
    facts: dict[str, float] = {}
    """The figures known from outside of this run's journal: counts and sums."""


class ToolsPlanned(JournalEvent, frozen=True, tag="tools.planned"):
    """The tools and team members that may be called by rules which ask for a plan."""

    tools: list[str]


class ToolCalled(JournalEvent, frozen=True, tag="tool.called"):
    """A tool call is open: its executor owes a result. `arguments` are the model's, names of variables included."""

    call: str
    tool: str
    arguments: dict[str, Any]


class DelegateStarted(JournalEvent, frozen=True, tag="delegate.started"):
    """`call` is the id of the child run."""

    call: str
    member: str
    task: str
    inputs: dict[str, Any] = {}
    budget: Budget | None = None
    """The child's share of what this run had left."""
    passes: Passed | None = None
    """The part of this run that its policies may use; None: nothing."""


class CallRefused(JournalEvent, frozen=True, tag="call.refused"):
    """A requested call that cannot be made; the model reads why."""

    call: str
    name: str
    error: ErrorInfo
    arguments: dict[str, Any] = {}


class ToolAnswered(JournalEvent, frozen=True, tag="tool.answered"):
    """The first result of a call; later ones change nothing. `blob` has an output that was cut."""

    call: str
    tool: str
    output: Any = None
    error: ErrorInfo | None = None
    blob: str | None = None
    blob_form: BlobForm = "text"
    files: list[FileInfo] = []
    """That are in an output which was cut."""
    executor: str = ""
    seconds: float = 0.0
    """The time that the executor worked on it."""
    started_at: float | None = None
    """The time at which it began, by its own clock (Unix seconds); None if it was not reported."""
    note: str = ""
    """A note on the output for the model, such as that it does not fit the tool's return hint."""

    @property
    def read(self) -> Any:
        """Return the output as a model reads it, with the note."""
        if not self.note:
            return self.output
        text = self.output if isinstance(self.output, str) else msgspec.json.encode(self.output).decode()
        return f"{text}\n[Note of the executor: the call was made, but {self.note}]"


class ToolPaused(JournalEvent, frozen=True, tag="tool.paused"):
    """A call is unfinished: it goes on at `until` (Unix seconds), or by `tool.called` once a person has answered."""

    call: str
    tool: str
    unfinished: Unfinished
    until: float | None = None
    executor: str = ""


class CallTimedOut(JournalEvent, frozen=True, tag="call.timed_out"):
    """A call was not answered within its time; its answer, should it come, changes nothing but a member's usage."""

    call: str
    seconds: float
    code: Literal["", "away", "left"] = ""
    """`away`: its callee is away, for longer than `limits.away`, and has not begun it; `left`: it may have."""


class CallDropped(JournalEvent, frozen=True, tag="call.dropped"):
    """An open call is given up, because its answer is no longer needed."""

    call: str
    reason: str


class DelegateFinished(JournalEvent, frozen=True, tag="delegate.finished"):
    """The member's Report. `usage` counts its whole tree; `text` is what the manager's model reads.

    After `call.timed_out` it only reports what the member has used; nothing else in it counts.
    """

    call: str
    member: str
    state: RunState
    output: Any = None
    text: str = ""
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    steps: int = 0


class AnswerProposed(JournalEvent, frozen=True, tag="answer.proposed"):
    """An answer that counts once the tools that check it have passed it: their calls follow."""

    step: int
    answer: Any
    checks: dict[str, str]
    """Tool by the id of its call, in the order of the agent's checks."""
    arguments: dict[str, Any] | None = None
    """Of `final_answer`, as the model wrote them; None when code gave it."""


class AnswerChecked(JournalEvent, frozen=True, tag="answer.checked"):
    """One check is over. The events next to the last check say what follows from it: the end, or another step."""

    call: str
    check: str
    problem: str = ""
    """The reason why the answer has not passed it; "" when it has."""


class StepStarted(JournalEvent, frozen=True, tag="step.started"):
    """A step begins that no model call begins; its calls follow."""

    step: int
    name: str = ""
    """The name that the agent's kind gives it."""
    attempt: int = 1


class StepFinished(JournalEvent, frozen=True, tag="step.finished"):
    """Every call of the step has its observation; `error` when the answer held no call that could be made."""

    step: int
    error: ErrorInfo | None = None


class RecordIgnored(JournalEvent, frozen=True, tag="record.ignored"):
    """A late, unknown or duplicate record: accounted for, and without consequence."""

    kind: str
    code: IgnoredCode
    detail: str = ""
    """More about it, for people."""
    facts: dict[str, float] = {}
    """Figures of other runs by which a rule has turned it down, as in `policy.decided`."""
    usage: Usage = Usage()
    """Of a model's answer that another worker had bought as well: what it cost counts, and nothing else of it."""
    model: str = ""
    """Name of the model that gave that answer."""
    unpriced: bool = False
    """True if the price of this model is unknown."""


class RunFinished(JournalEvent, frozen=True, tag="run.finished"):
    """The end, for ever. `usage` counts the runs below as well."""

    state: RunState
    output: Any = None
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    steps: int = 0


class MessageReceived(JournalEvent, frozen=True, tag="message.received"):
    """A person has sent the run a message; its model reads it with the next call that begins."""

    text: str
    mode: MessageMode = "append"
    sender: str = ""


class EditApplied(JournalEvent, frozen=True, tag="edit.applied"):
    """A person has changed what the run plans to do; `base` was its version until then."""

    base: int
    operations: list[dict[str, Any]]
    sender: str = ""


class EditRefused(JournalEvent, frozen=True, tag="edit.refused"):
    """A person's change was not made; `reason` says why to the person."""

    base: int
    version: int | None
    """The present one; None: there is nothing to edit."""
    code: EditRefusal
    reason: str
    sender: str = ""


CommonEvent = (
    RunAccepted
    | MemoryAsked
    | MemoryRecalled
    | ToolsetChanged
    | ModelCalled
    | ModelAnswered
    | ModelDeferred
    | ContextOverflowed
    | HistorySummarized
    | ApprovalRequested
    | ApprovalDecided
    | PolicyDecided
    | ToolsPlanned
    | ToolCalled
    | ToolPaused
    | DelegateStarted
    | CallRefused
    | ToolAnswered
    | CallTimedOut
    | CallDropped
    | DelegateFinished
    | AnswerProposed
    | AnswerChecked
    | StepStarted
    | StepFinished
    | MessageReceived
    | EditApplied
    | EditRefused
    | SignalReceived
    | WaitStarted
    | WaitFinished
    | GraceStarted
    | CancelRequested
    | RecordIgnored
    | RunFinished
)

AnyEvent = JournalEvent
"""Any event of any kind of agent. What a journal may hold is `cadre.journal.entry.Entry.events`."""
