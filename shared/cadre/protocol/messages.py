"""The messages between services, as JSON: records to runs, calls to executors and sandboxes, stored effects.

`type` names the message on the wire, `v` its schema version; a new field always has a default, so that earlier messages
stay readable. Times (`at`, `started_at`) are Unix seconds by the NATS server's clock. Ids are derived
(`cadre.protocol.topology`), so a message that is published twice has the same id both times.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec

from cadre.protocol.cards import ToolCard
from cadre.protocol.code import BlobForm, CodeExchange, CodeFunction, CodeLimits, CodeRequest
from cadre.protocol.codes import ErrorInfo as ErrorInfo
from cadre.protocol.policy import Standing
from cadre.protocol.usage import Budget, Usage

SCHEMA_VERSION: Literal[1] = 1
"""The version of everything that is stored. `cadre.delivery.codec` reads messages of earlier versions."""

stored_version = cast("Callable[[], Literal[1]]", functools.partial(int, SCHEMA_VERSION))
"""Return that version: the factory of a field that is always stored."""

RunState = Literal["success", "max_steps_error", "error", "cancelled"]
"""The way in which a run ended. `success` and `max_steps_error` are smolagents' names."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The fields that every message has."""

    v: Literal[1] = msgspec.field(default_factory=stored_version)
    """Always stored: a factory is no default that could be left out."""
    id: str
    """Identity of the message: its receiver accounts for each id exactly once."""
    tree: str
    """Id of the root run of the delegation tree."""
    run: str
    """The run that the message is for or about."""
    at: float


class Head(msgspec.Struct):
    """The readable part of a stored message or journal entry of any type and schema version; the rest is left out."""

    v: int = 1
    type: str = ""
    kind: str | None = None
    """Kind of agent that a journal entry, or a record of one kind's own, belongs to; None where it is not said."""
    kind_version: int = 1


class ReplyTo(msgspec.Struct, frozen=True):
    """The destination of a Report: the run that delegated, and the agent whose inbox it reads."""

    agent: str
    run: str


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The point where a run branches off from an earlier one, whose first steps it takes over."""

    run: str
    at: int
    """The step that the new run begins with, from 1; it takes over the steps before."""
    observations: dict[str, str] = {}
    """Results that replace those of calls in the earlier steps, by `<step>_<index>` or call id."""
    delegated: bool = False
    """The earlier run's task came from a manager, and is presented to the model as such."""


MemoryScope = Literal["run", "session", "agent", "team", "user"]
"""The runs that share a memory: those of one tree, one session, one agent, one team or one person."""


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user and session of a run, and its place in the team. It decides which memories a call may see, and who
    shares those that it stores."""

    user: str | None = None
    """The person that the tree of runs works for."""
    session: str | None = None
    """The session of the tree's root."""
    root: str | None = None
    """The agent of the tree's root, where there is a session: it is one of this agent alone."""
    team: str | None = None
    reads: list[MemoryScope] = []
    """The scopes from which the caller recalls memories."""
    writes: MemoryScope = "run"
    """The scope of memories that it stores."""


class CallerTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terms for one run alone; a run of the team below it has none of them."""

    tools: list[ToolCard] = []
    """Functions that the caller answers: a call of one is held as for approval, and the feedback of the decision is its
    result."""
    ends_with_call: bool = False
    """True if the caller wants calls of these functions and no other answer: the run ends with the first of them."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the answer, in place of the agent's own."""
    metadata: dict[str, str] = {}
    """Notes of the caller, which Cadre does not read."""


class Task(Message, frozen=True, tag="task"):
    """Starts a run of an agent. Its id is `<run>:task`."""

    agent: str
    task: str
    inputs: dict[str, Any] = {}
    images: list[str] = []
    """`blob:`, `data:` or `https:` references."""
    has_files: bool = False
    """True if the tree began with files in its workspace: its agents are offered `query_resources`, if there is one."""
    max_steps: int | None = None
    spec: dict[str, Any] = {}
    """Fields of the spec in place of the agent's own, in a run that does a part of the same agent's work."""
    session: str | None = None
    continues: str | None = None
    """A finished root run of the same agent whose steps this run continues (`reset=False`)."""
    forks: Fork | None = None
    """The run of the same agent whose first steps this run takes over."""
    reply_to: ReplyTo | None = None
    path: list[str] = []
    """Names of the agents above, the root first."""
    deadline: float | None = None
    """Unix seconds at which the run ends with a partial result."""
    budget: Budget | None = None
    origin: Origin | None = None
    """The `user` and `session` of the tree, handed down to every run in it."""
    labels: dict[str, str] = {}
    """Words of the person or program that started the tree, by which its root is found again."""
    trace: str | None = None
    standing: Standing | None = None
    """The data that the run's policies may use from the run that began it; None: nothing."""
    request: str = ""
    """Digest of the request that started the run, if that had an Idempotency-Key, which is for this request alone."""
    terms: CallerTerms = CallerTerms()
    """The caller's terms for the run, in addition to the task."""


class FileInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file as a tool's output has it, `{"$file": {…}}`; its content is the blob `ref`."""

    ref: str
    media_type: str = "application/octet-stream"
    name: str = ""
    size: int = 0
    """Bytes."""


class Unfinished(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that goes on later: it rests until a person has answered, or until its pause is over."""

    state: dict[str, Any]
    """The state that the worker that goes on with it needs."""
    seconds: float = 0.0
    """The pause; none with a question."""
    question: str = ""
    schema: dict[str, Any] = {}
    """The JSON Schema of the answer to the question, an object."""
    may_repeat: bool = False
    """True if going on with it twice does no more harm than once."""


class PersonsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's answer to the question of a call."""

    action: Literal["accept", "decline"]
    content: dict[str, Any] = {}


class Resumption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The point at which an unfinished call goes on."""

    round: int
    """From 1."""
    state: dict[str, Any]
    answer: PersonsAnswer | None = None
    may_repeat: bool = False


def round_id(call: str, number: int) -> str:
    """Id of the message that has a call gone on with for the nth time; of 0, which begins it, that of the call."""
    return f"{call}~{number}" if number else call


def call_of_round(message: str) -> str:
    """The call of a round."""
    return message.partition("~")[0]


class ToolCall(Message, frozen=True, tag="tool_call"):
    """Asks an executor to run a tool, or to go on with a call. Its id is that of the call's round; at most one
    effect per id."""

    agent: str
    """The agent to whose inbox the result goes."""
    tool: str
    arguments: dict[str, Any]
    deadline: float | None = None
    """Unix seconds after which the result is no longer read, so that the call must not begin any more."""
    origin: Origin | None = None
    """The origin of the run. Tools of the memory service also learn from it whose memories the call may see."""
    reply: bool = True
    """True if the run waits for a result; if not, none is sent."""
    cleanup: bool = False
    """True if the run was asked to end, and makes the call to leave things in order: that end does not stop it."""
    output_chars: int | None = None
    """The number of characters that the caller reads of the output; a longer output is cut."""
    trace: str | None = None
    may_pause: bool = False
    """True if the run knows what to do with a call that is unfinished."""
    resumes: Resumption | None = None


class ToolResult(Message, frozen=True, tag="tool_result"):
    """The result of a tool, or the reason why it is missing. Its id is `<call>:result`, with the id of the round."""

    call: str
    tool: str
    output: Any = None
    """Any JSON value. A text over the executor's limit is cut in the middle; `blob` has all of it."""
    error: ErrorInfo | None = None
    blob: str | None = None
    blob_form: BlobForm = "text"
    files: list[FileInfo] = []
    """The files in an output that was cut; an output that was not cut names its files itself."""
    executor: str = ""
    started_at: float = 0.0
    unfinished: Unfinished | None = None
    note: str = ""
    """A note on the output for the model, such as that it does not fit the tool's return hint."""

    @property
    def seconds(self) -> float:
        """Seconds that the executor worked, rounded to 10 µs; 0 if that is not known."""
        return round(max(0.0, self.at - self.started_at), 5) if self.started_at else 0.0


class Report(Message, frozen=True, tag="report"):
    """The end of a child run, sent to its parent's inbox. Its id is `<child>:report`."""

    child: str
    agent: str
    state: RunState
    output: Any = None
    text: str = ""
    """The output as the member's `managed_agent.report` prompt presents it."""
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    steps: int = 0


class Follows(msgspec.Struct, frozen=True):
    """The record of people that was sent to a run before another one."""

    id: str
    seq: int
    """Its sequence in the stream."""


class PersonsRecord(Message, frozen=True, kw_only=True):
    """Base of what is sent to a run from outside while it goes on: such records are taken up in the order in which they
    were stored."""

    follows: Follows | None = None
    """The last one before it but for cancels, which wait for nothing."""


class Cancel(PersonsRecord, frozen=True, tag="cancel"):
    """Ends a run and everything below it."""

    reason: str = ""
    sender: str = ""
    now: bool = False
    """End it at once: what it has done is not made up for first."""


Verdict = Literal["approved", "rejected", "corrected"]


class CallEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of calls that a question proposes: of one of them, or a further one."""

    call: int | None = None
    """Number of the call, from 1; None adds one."""
    drop: bool = False
    """The call is not made."""
    tool: str | None = None
    """The tool or team member to call, if not that of the call."""
    arguments: dict[str, Any] | None = None
    """They take the place of the call's own of the same names; of another tool they are all."""


class Decision(PersonsRecord, frozen=True, tag="decision"):
    """A person's decision on a call that is held for approval. The first one counts."""

    call: str
    verdict: Verdict
    feedback: str = ""
    """The reason why the call was rejected or corrected; the model reads it."""
    tool: str | None = None
    """With `corrected`: the tool or team member to call instead; None keeps it."""
    arguments: dict[str, Any] | None = None
    """With `corrected`: the arguments to call it with; None keeps them."""
    edits: list[CallEdit] = []
    know: list[str] = []
    """Arguments whose values the run's policies know from here on."""
    sender: str = ""
    roles: list[str] = []
    """Roles of the sender, in addition to their name."""
    trace: str | None = None


class Signal(PersonsRecord, frozen=True, tag="signal"):
    """Something that a run may wait for has happened outside. It is kept until a wait of the run takes it."""

    name: str
    payload: Any = None
    sender: str = ""


MessageMode = Literal["append", "next", "interrupt"]
"""The moment at which a message is read: with the next model call; the same, before calls not begun; at once."""


class UserMessage(PersonsRecord, frozen=True, tag="user_message"):
    """A person's message to a run that goes on; its model reads it with its next call."""

    text: str
    mode: MessageMode = "append"
    sender: str = ""


class Edit(PersonsRecord, frozen=True, tag="edit"):
    """A person's change to an editable part of a run, such as its queue of tasks or its plan. Of those based on one
    version the first counts."""

    base: int
    """The version that the person saw."""
    operations: list[dict[str, Any]]
    """Changes, in order; what they may be is up to the agent's kind."""
    sender: str = ""


class CodeCall(Message, frozen=True, tag="code_call"):
    """Asks a sandbox to run a block of code, or to resume it. Its id is `<block>:<exchanges so far>`."""

    agent: str
    """The agent to whose inbox the answer goes."""
    pool: str
    """The pool of sandboxes that runs it."""
    block: str
    code: str
    exchanges: list[CodeExchange] = []
    """The latest exchanges of the block; those before are in `earlier`."""
    before: int = 0
    """The number of exchanges in `earlier`."""
    earlier: str | None = None
    """`blob:` reference of the exchanges before `exchanges`."""
    snapshot: str | None = None
    """`blob:` reference of the variables as the previous block left them."""
    inputs: dict[str, Any] = {}
    """Those of the task, which the code finds as variables; {} once they are in the snapshot."""
    functions: list[CodeFunction] = []
    imports: list[str] = []
    """The modules that the code may import; `*`: any."""
    limits: CodeLimits = CodeLimits()
    deadline: float | None = None
    trace: str | None = None

    @property
    def done(self) -> int:
        """The number of all exchanges of the block so far."""
        return self.before + len(self.exchanges)

    def place(self, outcome: Literal["yielded", "finished"], at: float) -> dict[str, Any]:
        """Return the fields by which the record of this outcome says what it answers; `at` is its time."""
        id_ = f"{self.block}:{self.done}:{outcome}"
        return {"id": id_, "tree": self.tree, "run": self.run, "at": at, "block": self.block, "exchange": self.done}


class CodeYielded(Message, frozen=True, tag="code_yielded"):
    """The block waits for calls. Its id is `<block>:<exchange>:yielded`."""

    block: str
    exchange: int
    """The number of exchanges before this one."""
    calls: list[CodeRequest]
    clock: list[float] = []
    logs: str = ""
    sandbox: str = ""
    tier: str = ""
    references: list[str] = []
    stored: int = 0


class CodeFinished(Message, frozen=True, tag="code_finished"):
    """The block has ended, normally or with an error. Its id is `<block>:<exchange>:finished`."""

    block: str
    exchange: int
    output: Any = None
    """The value of the last expression, or the final answer."""
    text: str = ""
    """The output as a model reads it."""
    is_final_answer: bool = False
    logs: str = ""
    error: ErrorInfo | None = None
    notes: list[str] = []
    """The values that could not be kept, and the reasons; the model reads it."""
    snapshot: str | None = None
    sandbox: str = ""
    tier: str = ""
    seconds: float = 0.0
    references: list[str] = []
    stored: int = 0


CodeAnswer = CodeYielded | CodeFinished
"""The records that a run is sent for a CodeCall."""


class TimerFired(Message, frozen=True, tag="timer"):
    """A message schedule came due."""

    name: str


FromPeople = Cancel | Decision | Signal | UserMessage | Edit
"""The records that are sent to a run from outside while it goes on."""

Record = Task | ToolResult | Report | FromPeople | CodeYielded | CodeFinished | TimerFired
"""The messages that may lie in an agent's inbox."""


class KindMessage(Message, frozen=True):
    """Base of inbox records that only one kind of agent knows: a service without that kind, or with an earlier
    version of it, leaves such a record to a newer replica."""

    kind: str
    kind_version: int = 1


class EffectClaim(Message, tag="effect_claim", frozen=True):
    """An executor is about to run a call that may change the world. Its id is `<call>:claim`."""

    call: str
    executor: str
    """The instance that runs the call."""
    call_seq: int
    """Stream sequence of the call's message: a second publication of the call has another one."""
    agent: str
    tool: str
    """The tool that `agent` calls."""
    revoked: bool = False
    """True if the call is no longer awaited: it is not run again. Written over the claim by the run's worker."""


class EffectResult(Message, tag="effect_result", frozen=True):
    """The outcome of a claimed call, kept as long as its tree. Its id is `<call>:effect`."""

    claim: EffectClaim
    claim_seq: int
    """The fence that this result was stored under: the stream sequence of the claim, 0 where none stands before it."""
    result: ToolResult


Addressed = Task | ToolResult | Report | FromPeople | CodeYielded | CodeFinished | ToolCall | CodeCall
"""The messages that one service sends to another."""


class Spilled(Message, frozen=True, tag="spilled"):
    """Stands for a message over the spill limit, whose bytes are in the object store."""

    ref: str
    """`blob:<sha256>`"""
    size: int


class Erased(Message, frozen=True, tag="erased"):
    """A tree was removed. Its messages before this one are gone, and those behind it are late and ignored.
    Its id is `<tree>:erased`."""

    expired: bool = False
    """True if the tree was removed because its time was over, and not on request."""


class Imported(Message, frozen=True, tag="imported"):
    """A tree was imported from a file: its journals follow this message. Its id is `<tree>:imported`."""


Lifecycle = Erased | Imported
"""A record of the tree as a whole, which lies among its journals and outlives them."""
