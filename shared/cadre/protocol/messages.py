"""What travels between services: the records of an inbox and the calls of a tool, as JSON.

One tagged union per direction. `type` names the record on the wire, `v` its schema version; a new
field always has a default, so version 1 stays readable. Times (`at`, `started_at`) are Unix seconds
by the sender's clock. Ids are derived (see `cadre.subjects`), so publishing twice says the same thing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cadre.protocol.code import BlobForm, CodeExchange, CodeFunction, CodeLimits, CodeRequest

SCHEMA_VERSION = 3
"""Of everything stored. `cadre.upcast` reads what has an earlier one."""

type_field = "type"

RunState = Literal["success", "max_steps_error", "error", "cancelled"]
"""How a run ends. `success` and `max_steps_error` are smolagents' names."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field=type_field):
    """Fields that every message has."""

    v: Literal[3] = 3
    id: str
    """Identity of the record: the receiver accounts for each id exactly once."""
    tree: str
    """Id of the root run of the delegation tree."""
    run: str
    """The run that the message is for or about."""
    at: float


class Head(msgspec.Struct):
    """What can be read of a stored message or journal entry of any type and schema version; the rest is left out."""

    v: int = 0
    type: str = ""
    kind: str = ""
    """Kind of agent that a journal entry, or a record of one kind's own, belongs to."""
    kind_version: int = 1


class ErrorInfo(msgspec.Struct, frozen=True):
    """What went wrong, as data. `type` is one of smolagents' error classes where one fits:
    AgentGenerationError, AgentParsingError, AgentToolCallError, AgentToolExecutionError,
    AgentMaxStepsError, AgentError (an answer that a check turned down); else Interrupted, Poisoned, NotFound,
    Cancelled, Rejected, Expired, LoopDetected, BudgetExceeded, DeadlineExceeded."""

    type: str
    message: str


class Usage(msgspec.Struct, frozen=True):
    """What a run and all runs below it have used."""

    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    steps: int = 0
    """Finished steps."""
    cost: float = 0.0
    """In the currency of the price table; models without a price cost nothing here."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.model_calls + other.model_calls,
            self.steps + other.steps,
            self.cost + other.cost,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run and all runs below it may use together; None: as much as they like."""

    tokens: int | None = None
    """Input and output tokens."""
    cost: float | None = None
    """In the currency of the price table."""
    steps: int | None = None
    depth: int | None = None
    """Levels of delegation below the run."""


class ReplyTo(msgspec.Struct, frozen=True):
    """Where a Report goes: the run that delegated, and the agent whose inbox it reads."""

    agent: str
    run: str


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run begins whose first steps are those of another one."""

    run: str
    at: int
    """The step that it begins with, from 1; those before it are its memory."""
    observations: dict[str, str] = {}
    """What calls of those steps came to instead, by `<step>_<index>` or call id."""
    delegated: bool = False
    """The other run's task came from a manager, and its model reads it like that."""


MemoryScope = Literal["run", "session", "agent", "team", "user"]
"""Who shares a memory: the runs of one tree, of one session, of one agent, of one team, or of one person."""


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For whom something is done: what decides which memories a call may see, and who will share what it keeps."""

    user: str | None = None
    """The person that the tree of runs works for."""
    session: str | None = None
    """The session of the tree's root."""
    team: str | None = None
    reads: list[MemoryScope] = []
    """Scopes that the caller recalls from."""
    writes: MemoryScope = "run"
    """Scope of what it has remembered."""


class Task(Message, frozen=True, tag="task"):
    """Starts a run of an agent. Its id is `<run>:task`."""

    agent: str
    task: str
    additional_args: dict[str, Any] = {}
    images: list[str] = []
    """`blob:`, `data:` or `https:` references."""
    max_steps: int | None = None
    session: str | None = None
    continues: str | None = None
    """A finished root run of the same agent whose memory this run goes on from (`reset=False`)."""
    forks: Fork | None = None
    """The run of the same agent whose first steps this run takes over."""
    reply_to: ReplyTo | None = None
    path: list[str] = []
    """Names of the agents above, the root first."""
    deadline: float | None = None
    """Unix seconds at which the run ends, with what it has found until then."""
    budget: Budget | None = None
    origin: Origin | None = None
    """Whose tree it is: `user` and `session`, handed down to every run below."""
    trace: str | None = None
    """W3C traceparent."""


class FileInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file as it stands in a tool's output: `{"$file": {…}}`. Its bytes are the blob."""

    ref: str
    """`blob:<sha256>`"""
    media_type: str = "application/octet-stream"
    name: str = ""
    size: int = 0
    """Bytes."""


class ToolCall(Message, frozen=True, tag="tool_call"):
    """Asks an executor to run a tool. Its id is the call id; at most one effect per id."""

    agent: str
    """Whose inbox the result goes to."""
    tool: str
    arguments: dict[str, Any]
    deadline: float | None = None
    """Unix seconds after which nobody reads the result: the call is not begun any more."""
    origin: Origin | None = None
    """For tools of the memory service: whose memories these are."""
    reply: bool = True
    """Whether the run waits for the result; else none is sent."""
    output_chars: int | None = None
    """As many characters of the output as the caller will read: a longer one is cut to that."""
    trace: str | None = None


class ToolResult(Message, frozen=True, tag="tool_result"):
    """What a tool returned, or why it did not. Its id is `<call>:result`."""

    call: str
    tool: str
    output: Any = None
    """Any JSON value. A text longer than the executor's limit is cut in the middle; `blob` has it whole."""
    error: ErrorInfo | None = None
    blob: str | None = None
    blob_form: BlobForm = "text"
    files: list[FileInfo] = []
    """That are in an output which was cut; one that was not names them itself."""
    executor: str = ""
    started_at: float = 0.0


class Report(Message, frozen=True, tag="report"):
    """The end of a child run, told to its parent's inbox. Its id is `<child>:report`."""

    child: str
    agent: str
    state: RunState
    output: Any = None
    text: str = ""
    """The output as the member's `managed_agent.report` prompt presents it."""
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    steps: int = 0


class Cancel(Message, frozen=True, tag="cancel"):
    """Ends a run and everything below it."""

    reason: str = ""
    sender: str = ""


Verdict = Literal["approved", "rejected", "corrected"]


class Decision(Message, frozen=True, tag="decision"):
    """A person's word on a call that policy holds back. The first one counts."""

    call: str
    verdict: Verdict
    feedback: str = ""
    """For the model: why the call was rejected or corrected."""
    tool: str | None = None
    """With `corrected`: the tool or team member to call instead; None keeps it."""
    arguments: dict[str, Any] | None = None
    """With `corrected`: the arguments to call it with; None keeps them."""
    sender: str = ""
    trace: str | None = None
    """W3C traceparent of what brought it."""


class CodeCall(Message, frozen=True, tag="code_call"):
    """Asks a sandbox to run a block of code, or to go on with it. Its id is `<block>:<exchanges so far>`."""

    agent: str
    """Whose inbox the answer goes to."""
    pool: str
    """Which sandboxes."""
    block: str
    code: str
    exchanges: list[CodeExchange] = []
    """The last ones; those before them are in `earlier`."""
    before: int = 0
    """How many exchanges there were before these."""
    earlier: str | None = None
    """`blob:` reference of them (`cadre.delivery.code_history`)."""
    snapshot: str | None = None
    """`blob:` reference of the variables after the block before."""
    variables: dict[str, Any] = {}
    functions: list[CodeFunction] = []
    authorized_imports: list[str] = []
    limits: CodeLimits = CodeLimits()
    deadline: float | None = None
    trace: str | None = None

    @property
    def done(self) -> int:
        """How many exchanges the block has behind it."""
        return self.before + len(self.exchanges)


class CodeYielded(Message, frozen=True, tag="code_yielded"):
    """The block waits for calls. Its id is `<block>:<exchange>:yielded`."""

    block: str
    exchange: int
    """How many exchanges there were before."""
    calls: list[CodeRequest]
    clock: list[float] = []
    logs: str = ""
    sandbox: str = ""
    tier: str = ""


class CodeFinished(Message, frozen=True, tag="code_finished"):
    """The block has ended, by itself or by an error. Its id is `<block>:<exchange>:finished`."""

    block: str
    exchange: int
    output: Any = None
    """Value of the last expression, or the final answer."""
    text: str = ""
    """The same as a model reads it."""
    is_final_answer: bool = False
    logs: str = ""
    error: ErrorInfo | None = None
    notes: list[str] = []
    """For the model: what could not be kept, and why."""
    snapshot: str | None = None
    sandbox: str = ""
    tier: str = ""
    seconds: float = 0.0
    """Of its own computing."""


class TimerFired(Message, frozen=True, tag="timer"):
    """A message schedule came due."""

    name: str


Record = Task | ToolResult | Report | Cancel | Decision | CodeYielded | CodeFinished | TimerFired
"""What may lie in an agent's inbox."""


class KindMessage(Message, frozen=True):
    """Base of inbox records that only one kind of agent knows: a service without that kind, or with an earlier
    version of it, leaves such a record to a newer replica."""

    kind: str
    kind_version: int = 1


class EffectClaim(Message, tag="effect_claim", frozen=True):
    """An executor is about to run a call that may change the world. Its id is `<call>:claim`."""

    call: str
    executor: str
    """Instance that runs it."""
    call_seq: int
    """Stream sequence of the call's message: a second publication of the call has another one."""


class EffectResult(Message, tag="effect_result", frozen=True):
    """What came of a claimed call, for ever. Its id is `<call>:effect`."""

    claim: EffectClaim
    claim_seq: int
    """Stream sequence of the claim: the fence that this result was stored under."""
    result: ToolResult


Addressed = Task | ToolResult | Report | Cancel | Decision | CodeYielded | CodeFinished | ToolCall | CodeCall
"""What one service sends to another."""


class Spilled(Message, frozen=True, tag="spilled"):
    """Stands for a message over the spill limit: its bytes are in the object store."""

    ref: str
    """`blob:<sha256>`"""
    size: int


class Erased(Message, frozen=True, tag="erased"):
    """A tree was removed: what lies before this message in its stream is gone, what comes behind it is late.
    Its id is `<tree>:erased`."""

    expired: bool = False
    """Its time was over; otherwise somebody wanted it gone at once."""


class Imported(Message, frozen=True, tag="imported"):
    """A tree comes from a file: the journals behind this message are its own. Its id is `<tree>:imported`."""


Fate = Erased | Imported
"""What becomes of a tree as a whole; it lies among the tree's journals."""


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a model's answer while it is being written. Not stored; may be lost."""

    run: str
    agent: str
    step: int
    attempt: int
    text: str
    seq: int
