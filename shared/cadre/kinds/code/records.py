"""Declare the kind `code` and its records: blocks of code, their exchanges with a sandbox, the variables left."""

from typing import Any, ClassVar, TypeVar

import msgspec

from cadre.engine.context.images import images_of
from cadre.journal.parts import Description, JournalEvent, KindState, KindStep, PieceOfWork, SandboxTurn
from cadre.kinds.code import section
from cadre.kinds.plan.section import PLAN_LISTS, PLAN_TEMPLATES, decided_by, task_prompt
from cadre.kinds.tool_calling.records import STEPWISE
from cadre.protocol.code import CodeExchange, CodeReply, CodeRequest
from cadre.protocol.messages import CodeFinished, CodeYielded, ErrorInfo
from cadre.protocol.usage import Usage
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile

E = TypeVar("E", bound=JournalEvent)

PYTHON = "python"
"""As a tool: what runs the blocks of an agent that writes code."""


_SPAN: Any = {"key": "block", "encloses": True}


class BlockStarted(JournalEvent, frozen=True, tag="code.started"):
    """A sandbox owes the outcome of this block; its id is the first call id of the step's."""

    block: str
    code: str

    def describe(self) -> Description:
        return Description("running code", work=[PieceOfWork(self.block, "code", text=self.code, tool=PYTHON, **_SPAN)])


def copied(event: type[E], record: CodeYielded | CodeFinished) -> E:
    """Return the event of this class that copies the record field by field."""
    return event(**{name: getattr(record, name) for name in event.__struct_fields__})


class ProcessYielded(JournalEvent, frozen=True):
    """The code in a process waits for calls. The outcome of each follows, as for any call that a model asks for."""

    block: str
    exchange: int
    calls: list[CodeRequest]
    clock: list[float] = []
    logs: str = ""
    sandbox: str = ""
    tier: str = ""
    references: list[str] = []
    """Blobs that results name which the journal has cut; the code was given them whole."""
    stored: int = 0
    """Bytes that were stored for it."""

    copies: ClassVar = CodeYielded


class ProcessFinished(JournalEvent, frozen=True):
    """The code in a process has ended."""

    block: str
    exchange: int
    output: Any = None
    text: str = ""
    is_final_answer: bool = False
    logs: str = ""
    error: ErrorInfo | None = None
    notes: list[str] = []
    snapshot: str | None = None
    sandbox: str = ""
    tier: str = ""
    seconds: float = 0.0
    references: list[str] = []
    """As in ProcessYielded."""
    stored: int = 0

    copies: ClassVar = CodeFinished


class BlockYielded(ProcessYielded, frozen=True, tag="code.yielded"):
    """The block waits for calls."""

    def describe(self) -> Description:
        turn = SandboxTurn(self.exchange, self.sandbox, self.tier)
        work = PieceOfWork(self.block, turn=turn, tool=PYTHON, **_SPAN)
        return Description(work=[work], used=Usage(calls=len(self.calls), stored_bytes=self.stored))


class BlockFinished(ProcessFinished, frozen=True, tag="code.finished"):
    """The block has ended; the step, or the run, ends with it."""

    def describe(self) -> Description:
        said = "\n".join(text for text in (self.logs.rstrip("\n"), self.text) if text)
        work = PieceOfWork(
            self.block,
            state="failed" if self.error is not None else "ok",
            result=said or self.output,
            error=self.error,
            turn=SandboxTurn(self.exchange, self.sandbox, self.tier),
            tool=PYTHON,
            seconds=self.seconds,
            **_SPAN,
        )
        used = Usage(stored_bytes=self.stored)
        return Description("", work=[work], used=used, images=images_of(self.output))


class CodeInWork(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The block of code of the step in work."""

    block: str
    code: str
    since: int = 0
    """Entry that made the sandbox owe the next outcome; 0 while the block waits for calls."""
    at: float = 0.0
    started_at: float | None = None
    """The time at which the block began, in Unix seconds; None where it may take any time."""
    exchanges: list[CodeExchange] = []
    asked: list[CodeRequest] = []
    """Calls that it waits for, in their order."""
    clock: list[float] = []
    calls: list[str] = []
    """Ids of those calls."""
    replies: dict[str, CodeReply] = {}
    """By id, as far as they have come."""


class CodeState(KindState, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The state that a code agent's run keeps between blocks and within one."""

    work: CodeInWork | None = None
    snapshot: str | None = None
    """`blob:` reference of the variables that the code has left."""
    inherited_snapshot: str | None = None
    """The value of `snapshot` when the run began: that of the run which it goes on from."""
    references: list[str] | None = None
    """`blob:` references that the run was given, or has made; only these may the code pass on. None: unknown, where the
    run goes on from one which did not note them."""
    referenced_in_steps: int = 0
    """The number of them that are in finished steps."""
    calls: int = 0
    """That the code has made."""
    stored: int = 0
    """Bytes that were stored for the code."""


class CodeStep(KindStep, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The block of an action step, and its outcome."""

    code: str
    """As the model wrote it."""
    observation: str | None = None
    """The text that the block printed and its value."""
    snapshot: str | None = None
    """`blob:` reference of the variables after it."""
    observer: str | None = None
    """Id of the call that observes what the block has changed (`code.observe`); None without such a call."""
    error: ErrorInfo | None = None
    """The reason why the block failed, until that call ends the step with it."""
    references: list[str] | None = None
    """Those that the step has added to `CodeState.references`."""


_OFFERED = "tools managed_agents"
_TAGS = "code_block_opening_tag code_block_closing_tag"


def facts(spec: Any) -> Facts:
    """Return what follows from a spec: its runs are those of plans where it carries one out."""
    return section.facts(spec, decided_by(spec))._replace(task=task_prompt(spec))


DECLARATION = KindDeclaration(
    name=section.KIND,
    behavior={1: "cadre.kinds.code.kind:CODE"},
    purposes=STEPWISE,
    prompts={
        "code": PromptFile(
            must=f"custom_instructions {_OFFERED} authorized_imports {_TAGS}",
            may="output_schema",
            names_in_code=True,
            templates=PLAN_TEMPLATES,
            lists=("authorized_imports", *PLAN_LISTS),
            shares="plan",
        ),
        "browser_code": PromptFile(
            must=f"custom_instructions {_OFFERED} authorized_imports {_TAGS}",
            may="output_schema",
            names_in_code=True,
            templates=PLAN_TEMPLATES,
            lists=("authorized_imports", *PLAN_LISTS),
            like="code",
            shares="plan",
            has_short=False,
        ),
        # What stands around the code is the schema's affair there.
        "structured_code": PromptFile(
            must=f"custom_instructions {_OFFERED} authorized_imports",
            may=f"{_TAGS} output_schema",
            names_in_code=True,
            templates=PLAN_TEMPLATES,
            lists=("authorized_imports", *PLAN_LISTS),
            shares="plan",
        ),
    },
    records=(BlockStarted, BlockYielded, BlockFinished, CodeState, CodeStep, section.CodeSpec),
    check=section.check,
    facts=facts,
)
