"""What a kind of agent is where it says nothing else: `Kind` with a default for all but how it begins, what follows
from an answer, what follows a step, and what its model is asked."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from cadre.engine.commands import Command
from cadre.engine.edits import (
    Editable,
    EditNotAllowed,
)
from cadre.engine.kind import Chat, Deed, Execution
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.moves import PARTIAL_RESULT, Moves, Signalled, Stop
from cadre.engine.steps import still_open
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, CallState
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Edit, ErrorInfo, Message
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TaskInputs, TeamReach


class PlainKind(ABC):
    """Base of kinds: `cadre.engine.kind.Kind` says what each method is for."""

    name: str
    stops_circles: bool = True
    counts_steps: bool = True
    stops_repeats: bool = True
    ending: str = FINAL_ANSWER
    reads_whole: bool = False
    answers_messages: bool = False
    makes_up: bool = False

    def problems(self, spec: AgentSpec, reach: TeamReach) -> Iterable[ContractProblem]:
        return ()

    def inputs(self, spec: AgentSpec) -> TaskInputs:
        """Its model reads whatever it is given."""
        return TaskInputs()

    @abstractmethod
    def begin(self, run: Run, arrival: Arrival) -> Moves: ...

    @abstractmethod
    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves: ...

    @abstractmethod
    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves: ...

    @abstractmethod
    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest: ...

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        """The step is over with its last open call."""
        if run.current is None and call is not None:
            return []
        return [] if still_open(run, arrival) else self.went(run, arrival)

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        return self.settled(run, None, arrival)

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        return None

    def absent(self, run: Run, message: str, arrival: Arrival) -> Moves | None:
        return None

    def editable(self, run: Run) -> Editable | None:
        return None

    def check_edit(self, run: Run, edit: Edit) -> None:
        raise EditNotAllowed(f"agents of kind {self.name} have nothing to edit", "not-editable")

    def edited(self, run: Run, edit: Edit, arrival: Arrival) -> Moves:
        return []

    def last_word(self, run: Run, step: int, arrival: Arrival) -> Moves:
        """The run goes no further: what it has found is its answer."""
        error = ErrorInfo("max-steps", f"Reached the limit of {run.max_steps} steps.")
        return [Stop("max_steps_error", PARTIAL_RESULT, error)]

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        return None

    def cancelled(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        return None

    def not_undone(self, run: Run) -> list[str]:
        return []

    def outlived(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        return None

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        return {}

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        return None

    def owes(self, run: Run, since: int) -> list[Command]:
        return []

    def arguments(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def frame(self, prompts: Prompts) -> str:
        return ""

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        return None

    def deed(self, own: KindStep) -> Deed | None:
        raise TypeError(f"steps of kind {self.name} hold nothing but calls, not {type(own).__name__}")

    def as_read(self, spec: AgentSpec, content: str) -> str:
        return content

    def reads_calls(self, run: Run) -> bool:
        return True

    def tokens(self, run: Run, event: JournalEvent) -> int:
        return 0

    def held_tokens(self, run: Run) -> int:
        return 0

    def images(self, event: JournalEvent) -> list[str]:
        return []

    def executed(self, event: JournalEvent) -> Execution | None:
        return None

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return False
