"""Runs, their traces and their pending calls, as the HTTP API shows them. Times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from cadre.journal.run import Step
from cadre.options import explained
from cadre.protocol.messages import CallEdit, ErrorInfo, Fork, Verdict
from cadre.protocol.usage import Budget, Usage
from cadre.telemetry.tracing.spans import SpanRecord

State = Literal["queued", "running", "waiting", "success", "max_steps_error", "error", "cancelled"]
"""`queued`: no replica of its agent has begun it. `waiting`: for a person, a time, a signal, or as long as the model
endpoint asked for."""

RunOrder = Literal["started", "ended", "cost"]
"""By when runs were asked for or ended, or by what they cost; the newest or dearest first."""

ApprovalState = Literal["pending", "decided", "dropped"]


@explained({"cost": "usage.cost", "result": "output", "runs": "children"})
class RunSummary(msgspec.Struct, kw_only=True):
    """One run as the list shows it. Times are Unix seconds."""

    id: str
    tree: str
    parent: str | None = None
    agent: str = ""
    task: str = ""
    state: State = "running"
    waiting_for: str | None = None
    """The thing that the run itself waits for, if it waits: `approval`, `model`, `time` or `signal NAME`; in the
    account of a single run also `agent NAME`, `revision REV of agent NAME`, `tool NAME`, `sandbox POOL` or `memory`, if
    no service offers it at the moment."""
    approvals: int = 0
    """Calls of the run and of all runs below it that wait for a person."""
    step: int = 0
    asked_at: float = 0.0
    """The time at which its task was sent; until it begins it is queued."""
    started_at: float = 0.0
    """The time at which it began; while it is queued, the time at which its task was sent."""
    ended_at: float | None = None
    usage: Usage = Usage()
    session: str | None = None
    user: str | None = None
    """The person for whom its tree works."""
    labels: dict[str, str] = {}
    """The labels that its caller gave it."""
    error: ErrorInfo | None = None
    revision: str = ""
    """Of the agent, as it began the run: a digest of its spec and its prompts; "" for runs that have not begun."""

    @property
    def finished(self) -> bool:
        """Return whether the run has ended."""
        return self.ended_at is not None


@explained({"cost": "usage.cost", "result": "output", "runs": "children"})
class RunDetail(RunSummary, kw_only=True):
    """A run and all runs below it."""

    trace: str
    """The id of the trace that the whole tree of runs makes: 32 hexadecimal digits."""
    output: Any = None
    deadline_at: float | None = None
    """Unix seconds at which the run ends, with or without an answer."""
    budget: Budget | None = None
    """The budget of the run and all runs below it together."""
    forked_from: Fork | None = None
    """The run, and the step of it, that this one began with."""
    schemas: str = ""
    """Digest of what its tools said of themselves when it was last offered them; empty where it was offered none."""
    own_usage: Usage
    """The usage of the run itself, without those below it."""
    children: list[RunDetail]
    memory: list[Step] | UnsetType = UNSET
    next: int | UnsetType | None = UNSET
    """With `limit`: `after` of the page with further runs directly below or further steps; None on the last page."""


class RunResult(msgspec.Struct, kw_only=True):
    """The result of a run; the second half only with `return_full_result`."""

    id: str
    state: State
    output: Any = None
    error: ErrorInfo | None = None
    steps: int | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    started_at: float | UnsetType = UNSET
    ended_at: float | UnsetType | None = UNSET
    memory: list[Step] | UnsetType = UNSET


class Accepted(msgspec.Struct, omit_defaults=True):
    """The answer to a request that started a run."""

    id: str
    agent: str
    state: State
    links: dict[str, str]
    later_files: list[str] = []
    """The paths of a fork's workspace whose version at the step is not known. They are as they are now in the
    run that was forked."""


class ModelCallPlace(msgspec.Struct, frozen=True):
    """The place of a model call in its step."""

    purpose: str
    attempt: int


class SentRequest(msgspec.Struct, kw_only=True):
    """A model call of a step, as its agent sent it."""

    id: str
    step: int
    purpose: str
    attempt: int
    at: float
    """Unix seconds at which the call began."""
    api: Literal["chat", "responses"]
    body: dict[str, Any]
    """The posted body. Images stand as `blob:` references in place of their bytes."""
    calls: list[ModelCallPlace]
    """All model calls of the step, in their order; this is the one that was asked for, or the last."""


class Delivered(msgspec.Struct):
    """Something that was sent to a run. `at` is null as long as no agent has taken it up: it is kept until then."""

    id: str
    run: str
    at: float | None = None


class Edited(msgspec.Struct, kw_only=True):
    """The parts of a run that a person may edit, as they are now."""

    run: str
    name: str
    """`queue` or `plan`."""
    version: int
    """An edit names the one that it is based on."""
    state: Any
    """All of it; its form is up to the agent's kind."""


class TraceSpan(SpanRecord, frozen=True, kw_only=True):
    """A span in its place."""

    depth: int


class TraceTree(msgspec.Struct, kw_only=True):
    """The trace of a run and of all runs below it."""

    id: str
    trace: str
    spans: list[TraceSpan]
    """Parents before their children, siblings by time. Of a page: those parents that are on it."""
    next: int | msgspec.UnsetType | None = msgspec.UNSET
    """With `limit`: `after` of the next page; None on the last one."""


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that policy holds back. Times are Unix seconds."""

    call: str
    run: str
    tree: str
    agent: str
    name: str
    kind: Literal["tool", "member", "question", "function"]
    headline: str = ""
    """The request in one line: the tool's `approval_text`, else the name with its arguments, or the question."""
    arguments: dict[str, Any]
    cut: bool = False
    """The arguments are longer than this: the call itself has them whole."""
    reason: str
    requested_at: float
    expires_at: float | None = None
    """The time at which it counts as turned down; None: it waits forever."""
    rule: str = ""
    """Name of the policy's rule that holds it; "" where the agent's `approvals` do."""
    decided_by: list[str] = []
    """Names of keys, and roles, that may decide; []: everybody who may."""
    origins: dict[str, list[str]] = {}
    """By argument (`recipients[0]`): where its value first stood (`task`, `trusted` …), the call that brought it, and
    the place in that call's result."""


class ApprovalDecision(msgspec.Struct, kw_only=True):
    """The decision on a call. `at` is null as long as no agent has taken it up."""

    call: str
    verdict: Verdict | Literal["expired"]
    by: str
    at: float | None = None
    feedback: str = ""
    tool: str | None = None
    """The tool or member that is called instead, when that was corrected."""
    arguments: dict[str, Any] | None = None
    """The arguments of the call, when they were corrected."""
    edits: list[CallEdit] = []
    """The changes to the calls that a question proposed."""


class AskingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run above a call, with its task, shortened."""

    run: str
    agent: str
    task: str


class EarlierResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call that its run made before, in lines of at most 300 characters."""

    call: str
    asked: str
    result: str
    failed: bool = False


class Approval(PendingCall, frozen=True, kw_only=True):
    """A call that waits, or has waited, for a person."""

    task: str
    """The task of its run, shortened."""
    chain: list[AskingRun] = []
    """The runs that led to it, from the root to its own."""
    user: str | None = None
    """The person for whom its tree works."""
    session: str | None = None
    earlier: dict[str, int] = {}
    """By verdict: how many calls of this name and agent people, or the clock, decided on before."""
    results: list[EarlierResult] | UnsetType = UNSET
    """The last calls of its run that ended, the newest first; not in the list."""
    schema: dict[str, Any] | None
    """JSON Schema of the arguments."""
    values: dict[str, Any] | None = None
    """The arguments as they would be sent, the values of variables in the place of their names; not in the list."""
    state: ApprovalState = "pending"
    """`dropped`: its run ended first."""
    decision: ApprovalDecision | None = None
