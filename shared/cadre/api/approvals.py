"""Calls that wait, or have waited, for a person, as the HTTP API shows them. Times are Unix seconds."""

from typing import Any, Literal

import msgspec

from cadre.protocol.call_edit import CallEdit
from cadre.protocol.messages import Verdict

ApprovalState = Literal["pending", "decided", "dropped"]


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that policy holds back. Times are Unix seconds."""

    call: str
    run: str
    tree: str
    agent: str
    name: str
    kind: Literal["tool", "member", "question"]
    arguments: dict[str, Any]
    cut: bool = False
    """The arguments are longer than this: the call itself has them whole."""
    reason: str
    requested_at: float
    expires_at: float | None = None
    """When it counts as turned down; None: it waits for ever."""


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
    """What was changed about the calls that a question proposed."""


class Approval(PendingCall, frozen=True, kw_only=True):
    """A call that waits, or has waited, for a person."""

    task: str
    """The task of its run, shortened."""
    schema: dict[str, Any] | None
    """JSON Schema of the arguments."""
    values: dict[str, Any] | None = None
    """The arguments as they would be sent, the values of variables in the place of their names; not in the list."""
    state: ApprovalState = "pending"
    """`dropped`: its run ended first."""
    decision: ApprovalDecision | None = None
