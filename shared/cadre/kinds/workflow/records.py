"""Declare the kind `workflow` and its records: what its steps came to, and where that led."""

from typing import Any, ClassVar

import msgspec

from cadre.journal.parts import Description, JournalEvent, KindState, KindStep
from cadre.kinds.workflow import section
from cadre.kinds.workflow.check import asks_model, check
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import ErrorInfo, RunState
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile


class ItemsListed(JournalEvent, frozen=True, tag="workflow.items"):
    """The items of an `each` step: a run begins for each of them in turn."""

    items: list[Any]

    def describe(self) -> Description:
        return Description("going through a list", [f"goes through a list of {len(self.items)}"])


class AnswerParsed(JournalEvent, frozen=True, tag="workflow.answer_parsed"):
    """A step's result, where no common event has it: what the model's answer to an `ask` step was read as, the signal
    that has ended a wait, the value of an end behind which others are made up for."""

    value: Any

    def describe(self) -> Description:
        return Description("")


class WorkflowStepFinished(JournalEvent, frozen=True, tag="workflow.step_finished"):
    """A step is over, and leads to another one or to an end."""

    quoted: ClassVar[tuple[str, ...]] = ("label",)
    name: str
    next: str = ""
    """The step that follows; "" at an end."""
    label: str = ""
    """The label of the way that was taken: the model's choice, the condition that holds, a person's word."""
    error: ErrorInfo | None = None
    retry: bool = False
    """It will be tried once more."""

    def describe(self) -> Description:
        if self.error is not None:
            what = "will be tried again" if self.retry else f"leads to {self.next}" if self.next else "ends the run"
            return Description("", [f"{self.name} failed and {what}: {self.error.message}"])
        way = f" ({self.label})" if self.label else ""
        line = f"leaves {self.name} for {self.next}{way}" if self.next else f"ends behind {self.name}{way}"
        return Description("", [line])


class UndoBegun(JournalEvent, frozen=True, tag="workflow.undo"):
    """The workflow will end so; the steps that make up for what was done come first."""

    state: RunState
    error: ErrorInfo
    steps: list[str]
    """The steps that are made up for, the latest first."""
    unsure: list[str] = []
    """Steps that are not, because it is unknown whether they took effect."""

    def describe(self) -> Description:
        return Description("undoing", [f"undoes {', '.join(self.steps) or 'nothing'}"])


class Undoable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished step that another one makes up for."""

    step: str
    undo: str
    result: Any = None


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of the run once all is made up for."""

    state: RunState
    error: ErrorInfo
    undone: Undoable | None
    """The step that is being made up for; None once all are."""
    failed: list[str] = []
    """Steps for which that has failed, or was not tried."""


class FailedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest step that failed for good, as templates read it by the name `error`."""

    step: str
    code: ErrorCode
    type: str
    message: str

    @classmethod
    def of(cls, step: str, error: ErrorInfo) -> "FailedStep":
        """Return the step `step` as one that failed with this error."""
        return cls(step=step, code=error.code, type=error.type, message=error.message)


class WorkflowState(KindState, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The state of a run: its place in the workflow, and what the steps gave. Its containers are replaced, never
    changed."""

    step: str = ""
    """The step in work, or the next to retry."""
    attempt: int = 0
    started_at: float = 0.0
    """The time at which its first attempt began (Unix seconds)."""
    last: str = ""
    """The latest step that succeeded."""
    visits: dict[str, int] = {}
    results: dict[str, Any] = {}
    value: Any = None
    """Of the step in work, as far as it has one."""
    complaint: str = ""
    """The reason why the attempt before failed, for the model."""
    error: FailedStep | None = None
    items: list[Any] = []
    answers: dict[str, Any] = {}
    """Of the parts that succeeded, by call."""
    undo: list[Undoable] = []
    ending: Ending | None = None


class WorkflowStepNote(KindStep, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The description of a step of a run, as summaries and people read it."""

    name: str
    attempt: int = 1
    result: Any = None
    next: str = ""


def _facts(spec: Any) -> Facts:
    held = frozenset(() if spec.model.calls == "text" else {"json_schema"})
    return Facts(spec.kind, asks_model=asks_model(spec), capabilities=held, plans_tools=True)


DECLARATION = KindDeclaration(
    name=section.KIND,
    behavior={1: "cadre.kinds.workflow.kind:WORKFLOW"},
    purposes={
        "arguments": "filling in a tool's arguments",
        "ask": "answering",
        "route": "choosing the next step",
    },
    facts=_facts,
    prompts={
        "workflow": PromptFile(
            must="custom_instructions",
            may="tools managed_agents output_schema",
            templates={
                "workflow.arguments": ("task results tool instruction complaint", ""),
                "workflow.ask": ("task results prompt complaint", "output_schema"),
                "workflow.route": ("task results step result instruction options complaint", ""),
            },
            lists=("options",),
            like="tool_calling",
            has_short=False,
        )
    },
    records=(
        *(ItemsListed, AnswerParsed, WorkflowStepFinished, UndoBegun),
        *(WorkflowState, WorkflowStepNote, section.WorkflowSpec),
    ),
    check=check,
)
