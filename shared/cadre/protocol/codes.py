"""The reasons that programs act on, as codes. Each list is closed: another code is another version of the schema.

A text next to a code is for people and models, and may change at any time.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

ErrorCode = Literal[
    "max-steps",
    "no-answer",
    "no-room",
    "cut-off",
    "unreadable-answer",
    "not-passed",
    "invalid-call",
    "tool-failed",
    "member-failed",
    "code-failed",
    "timed-out",
    "away",
    "interrupted",
    "skipped",
    "loop",
    "cancelled",
    "deadline",
    "budget",
    "rejected",
    "expired",
    "policy",
    "poisoned",
    "not-found",
    "no-value",
    "no-way",
    "workflow-failed",
    "plan-failed",
    "nothing-done",
    "remote-error",
    "remote-failed",
    "remote-unreachable",
    "program-failed",
    "non-deterministic",
    "not-called",
]
"""The reason why a run ended without its answer, or why a call, a step or a block of code did."""


class ErrorKind(NamedTuple):
    """The class and the meaning of a code."""

    type: str
    """The class of the error; smolagents' own where one fits."""
    meaning: str


ERRORS: dict[ErrorCode, ErrorKind] = {
    "max-steps": ErrorKind("AgentMaxStepsError", "The run, or the workflow, has used up its steps."),
    "no-answer": ErrorKind(
        "AgentGenerationError",
        "The model gave no answer: all tries and fallbacks are used up, or it refused.",
    ),
    "no-room": ErrorKind("AgentGenerationError", "The model's context has no room for the request."),
    "cut-off": ErrorKind("AgentParsingError", "The endpoint cut the model's answer off at the limit of tokens."),
    "unreadable-answer": ErrorKind(
        "AgentParsingError", "The model's answer does not have the form that was asked for."
    ),
    "not-passed": ErrorKind("AgentError", "A check turned the answer down."),
    "invalid-call": ErrorKind(
        "AgentToolCallError", "The call cannot be made: its tool, its member or its arguments are wrong."
    ),
    "tool-failed": ErrorKind("AgentToolExecutionError", "The tool raised an error."),
    "member-failed": ErrorKind("AgentToolExecutionError", "The member's run ended without an answer."),
    "code-failed": ErrorKind("AgentExecutionError", "The block of code raised an error or was stopped."),
    "timed-out": ErrorKind("AgentToolExecutionError", "The call was not answered within its time."),
    "away": ErrorKind("Away", "What serves the call is away, and has not begun it."),
    "interrupted": ErrorKind("Interrupted", "The call may or may not have taken effect."),
    "skipped": ErrorKind("Skipped", "The call was given up for a message."),
    "loop": ErrorKind("LoopDetected", "The same call or the same mistake was repeated too often."),
    "cancelled": ErrorKind("Cancelled", "The run was cancelled, or the call's run has ended."),
    "deadline": ErrorKind("DeadlineExceeded", "The deadline has passed."),
    "budget": ErrorKind("BudgetExceeded", "The budget is used up, or cannot be kept."),
    "rejected": ErrorKind("Rejected", "A person decided against it."),
    "expired": ErrorKind("Expired", "No person decided, or no signal came, in time."),
    "policy": ErrorKind("PolicyDenied", "A rule of a policy does not allow the call."),
    "poisoned": ErrorKind("Poisoned", "No service could handle the record or the call."),
    "not-found": ErrorKind("NotFound", "The run that this one continues or forks is not known."),
    "no-value": ErrorKind("ExpressionError", "A template of the agent's file has no value."),
    "no-way": ErrorKind("NoRoute", "No way leads on from the step of the workflow."),
    "workflow-failed": ErrorKind("WorkflowFailed", "The workflow ended with an error that its file states."),
    "plan-failed": ErrorKind("PlanFailed", "The plan cannot be carried out."),
    "nothing-done": ErrorKind("AgentError", "No task of the queue led to a call or an answer."),
    "remote-error": ErrorKind("RemoteAgentError", "The remote agent's answer cannot be used."),
    "remote-failed": ErrorKind("RemoteAgentFailed", "The remote agent's task ended without an answer."),
    "remote-unreachable": ErrorKind("RemoteAgentUnreachable", "The remote agent was out of reach for too long."),
    "program-failed": ErrorKind("ProgramFailed", "The program raised an error, or its process died again and again."),
    "non-deterministic": ErrorKind(
        "NonDeterministic", "The program, run again after a death, asked for something else than before."
    ),
    "not-called": ErrorKind("NotCalled", "The call is not made in an evaluation."),
}


def codes_of(word: str) -> list[ErrorCode]:
    """Return the codes that a code or a type of error names; [] for another word."""
    return [code for code, kind in ERRORS.items() if word in (code, kind.type)]


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error: `code` for programs, `message` for people and models, `type` as its class."""

    code: ErrorCode
    message: str
    type: str = ""
    """By default the class that belongs to the code in `cadre.protocol.codes.ERRORS`."""
    raised: str = ""
    """The class of the exception that the tool raised, such as `ValueError`."""
    preamble: int = 0
    """Characters at the beginning of `message` that repeat the call, for a reader who sees the call anyway."""
    not_undone: tuple[str, ...] = ()
    """Of a run that ended badly: the steps of its workflow that an `undo` step should have made up for, and that were
    not or may not have been, the latest first."""

    def __post_init__(self) -> None:
        if not self.type:
            msgspec.structs.force_setattr(self, "type", ERRORS[self.code].type)

    def saying(self, message: str) -> ErrorInfo:
        """Return the same error with another text."""
        preamble = self.preamble if message.startswith(self.message[: self.preamble]) else 0
        return msgspec.structs.replace(self, message=message, preamble=preamble)


IgnoredCode = Literal[
    "run-ended",
    "not-begun",
    "not-awaited",
    "reads-no-messages",
    "messages-full",
    "signals-full",
    "invalid-correction",
    "not-entitled",
]
"""The reason why a record that came to a run has no effect."""

IGNORED: dict[IgnoredCode, str] = {
    "run-ended": "The run is over.",
    "not-begun": "The run has not begun.",
    "not-awaited": "The run does not wait for this, or not any more.",
    "reads-no-messages": "The run is a program with a loop of its framework, which reads no messages.",
    "messages-full": "The run keeps as many messages for its next model call as it may.",
    "signals-full": "The run keeps as many signals for later waits as it may.",
    "invalid-correction": "The call cannot be made as the decision corrects it; it goes on waiting.",
    "not-entitled": "The rule that holds the call has others decide; it goes on waiting.",
}


EditRefusal = Literal["not-editable", "stale-version", "edit-too-late", "invalid-edit"]
"""The reason why a person's change was not made."""

EDIT_REFUSALS: dict[EditRefusal, str] = {
    "not-editable": "The run has nothing to edit.",
    "stale-version": "The change is based on a version that is past.",
    "edit-too-late": "What is to be changed has begun, or is not there now.",
    "invalid-edit": "The change cannot be made as it is.",
}
