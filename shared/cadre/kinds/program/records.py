"""The records of the kind `program`: its section of an agent's file, its events, its state of a run."""

import re
from typing import Any

from cadre.errors import SpecError
from cadre.journal.parts import Description, JournalEvent, KindState, KindStep, PieceOfWork
from cadre.kinds.code.records import ProcessFinished, ProcessYielded
from cadre.protocol.code import CodeExchange, CodeReply, CodeRequest
from cadre.protocol.usage import Usage
from cadre.spec.kinds import Facts, KindDeclaration
from cadre.spec.names import check_bounds
from cadre.spec.program import FunctionSpec, pool_of

KIND = "program"
"""The name of the kind, and of its section."""

_MAIN = re.compile(r"[^:]+:[A-Za-z_]\w*")


class ProgramSection(FunctionSpec, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The section `program` of an agent's file."""


class ProgramStarted(JournalEvent, frozen=True, tag="program.started"):
    """A program host owes the outcome of the program."""

    program: str

    def describe(self) -> Description:
        return Description("running its program", [f"runs {self.program}"])


class ProgramAsked(ProcessYielded, frozen=True, tag="program.asked"):
    """The program waits for its model, or for calls; `clock` has the seconds after which it asked, since it was given
    what it waited for."""

    def describe(self) -> Description:
        return Description(used=Usage(calls=len(self.calls)))


class ProgramEnded(ProcessFinished, frozen=True, tag="program.ended"):
    """The function has returned, or raised, or its processes died again and again; the run ends with it."""

    def describe(self) -> Description:
        said = self.error.message if self.error is not None else "ok"
        work = PieceOfWork(
            self.block,
            KIND,
            "failed" if self.error is not None else "ok",
            result=said if self.error is not None else self.output,
            error=self.error,
        )
        return Description("", [f"its program has ended: {said}"], [work])


class ProgramState(KindState, kw_only=True, tag=KIND, omit_defaults=True):
    """The exchanges of a run with its program."""

    exchanges: list[CodeExchange] = []
    """Requests that were made together, and their outcomes."""
    asked: list[CodeRequest] = []
    """The requests that the program waits for, in their order."""
    clock: list[float] = []
    calls: list[str] = []
    """Ids of the calls among them, in their order."""
    replies: dict[int, CodeReply] = {}
    """By place in `asked`, as far as they have come."""
    since: int = 0
    """Entry that made the program host owe the next word; 0 while the program waits."""
    at: float = 0.0


class ProgramStep(KindStep, kw_only=True, tag=KIND, omit_defaults=True):
    """The exchanges that came to their end in a step."""

    exchanges: list[CodeExchange] = []
    asked: bool = False
    """True once the step's model was asked."""


def check(spec: Any) -> None:
    """Raise SpecError for a section that cannot hold."""
    section = spec.section(ProgramSection)
    if section is None:
        return
    if not _MAIN.fullmatch(section.main):
        raise SpecError(
            f"{section.main!r} names no function: write `file.py:name` or `package.module:name`",
            key="program.main",
            agent=spec.name,
        )
    bounds = (("program.hold", section.hold, 1.0), ("program.processes", section.processes, 1))
    check_bounds(spec.name, bounds)


DECLARATION = KindDeclaration(
    name=KIND,
    behavior={1: "cadre.kinds.program.kind:PROGRAM"},
    records=(ProgramStarted, ProgramAsked, ProgramEnded, ProgramState, ProgramStep, ProgramSection),
    purposes={KIND: "thinking"},
    check=check,
    # Its program writes the prompts; the shipped ones are named because every agent has some.
    facts=lambda spec: Facts(
        spec.kind,
        pools=(pool_of(spec.name),),
        prompt_file="tool_calling",
        writes_calls=False,
        serves_pools=True,
        reads_steps=False,
    ),
)
