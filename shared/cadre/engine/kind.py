"""The seam between the common loop and a kind of agent: what the loop asks of a kind, and how it finds one."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from cadre.engine.commands import Command
from cadre.engine.edits import (
    Editable,
)
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.moves import Moves, Signalled
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, CallState, Step
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Edit, ErrorInfo, Message
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TaskInputs, TeamReach
from cadre.spec.kinds import decided_by, declaration_of, declared_kinds


class Deed(NamedTuple):
    """What a step did beside single calls, in texts: for the model, for summaries, reports and memories."""

    name: str
    """What it is, as a heading: `Code`."""
    text: str
    """The deed itself; calls that were made within it are not told of by themselves, unless `with_calls` says so."""
    written: str
    """The deed as the model reads it in place of its own prose."""
    seen: str | None
    """What came of it."""
    nothing: str
    """What the model reads where nothing came of it."""
    with_calls: bool = False
    """The step's calls are no part of it: the model reads of them as well."""


class Execution(NamedTuple):
    """A piece of work that was done for a run elsewhere, as metrics count it."""

    tool: str
    error: str
    """Type of the error that it ended with; "" when it did not."""
    seconds: float


class Chat(Protocol):
    """The run's steps as chat messages, up to this moment."""

    def messages(self, run: Run) -> list[ChatMessage]:
        """The system prompt, and every step as the model reads it."""
        ...

    def functions(self) -> list[dict[str, Any]]:
        """Tools, members and `final_answer`, as functions of the API."""
        ...

    def planning(self, run: Run) -> list[ChatMessage]:
        """The request for a plan, or for a new one."""
        ...

    def last_word(self, run: Run) -> list[ChatMessage]:
        """The request for an answer when the steps are used up."""
        ...

    def read(self, run: Run, steps: Sequence[Step]) -> list[ChatMessage]:
        """These steps alone as the model reads them, behind the summary of the run if there is one."""
        ...

    def earlier(self, run: Run) -> list[ChatMessage]:
        """Return what was said and done in the turns that the run goes on from, behind the summary if there is one: for
        kinds whose requests hold no other history."""
        ...

    def rendered(self, key: str, **values: Any) -> str:
        """A template of the kind's own (`PromptFile.templates`)."""
        ...


class Kind(Protocol):
    """How one kind of agent works. Pure: one object for all runs, which knows a run by `run` alone.

    A kind decides by moves and keeps state in `run.own` and `run.current.own`; all common state is changed by the
    common fold. `arrival` is what a decision may know of the world beside the run.
    """

    name: str
    stops_circles: bool
    """Whether a run ends when the same answer meets the same error again and again (`limits.repeats`)."""
    counts_steps: bool
    """Whether `limits.max_steps` bounds its runs; other kinds bound them by something of their own."""
    stops_repeats: bool
    """Whether a call is refused when the same one has led to the same again and again (`limits.repeats`)."""
    ending: str
    """What its models call to give their answer."""
    reads_whole: bool
    """Its agents take outputs of tools whole, however long: they are not cut on their way."""

    answers_messages: bool
    """Whether an answer counts only once the model has read the messages that came before it: it is asked again."""

    makes_up: bool
    """True if its runs may make up for what they did before they end badly (`not_undone`)."""

    # --- before anything runs

    def problems(self, spec: AgentSpec, reach: TeamReach) -> Iterable[ContractProblem]:
        """What the kind's own section expects of tools and members, and does not hold."""
        ...

    def inputs(self, spec: AgentSpec) -> TaskInputs:
        """Return the inputs of a task that its section reads."""
        ...

    # --- decide

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        """What the run does first, its task and memories at hand."""
        ...

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        """What follows from the model's answer to the call `run.model`."""
        ...

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        """What follows when `call` has its outcome by this very arrival; None: calls were refused at once."""
        ...

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        """What follows when all of these calls were refused at once (`CallRefused`)."""
        ...

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        """What follows when the step in work is over, with what was wrong with it."""
        ...

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        """What follows from a record of the kind's own, or from a wait that is over: a TimerFired of the wait's name
        when its time has come, a Signalled when its signal has. None: it is not awaited."""
        ...

    def absent(self, run: Run, message: str, arrival: Arrival) -> Moves | None:
        """Return what follows when a record of the kind's own has waited for too long in the queue of something that is
        away; `message` is what `cadre.engine.timers.away_timer` was given. None: it is not awaited."""
        ...

    def editable(self, run: Run) -> Editable | None:
        """What a person may edit of the run now; None: nothing."""
        ...

    def check_edit(self, run: Run, edit: Edit) -> None:
        """Raises EditNotAllowed for an edit of the present version that cannot be made."""
        ...

    def edited(self, run: Run, edit: Edit, arrival: Arrival) -> Moves:
        """What follows from an edit; `fold` has made its EditApplied true of the run."""
        ...

    def last_word(self, run: Run, step: int, arrival: Arrival) -> Moves:
        """What follows when the steps are used up; `step` is the last one."""
        ...

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        """What follows when the model gives no answer however often it is asked; None: the run ends in error."""
        ...

    def cancelled(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        """Return what follows when somebody wants the run to end; None: it ends at once. Called once, and not at all if
        the run is to end at once."""
        ...

    def not_undone(self, run: Run) -> list[str]:
        """Return what the run has done, or may have done, and not made up for, as a person would name it. It is asked
        when the run ends badly, if `makes_up`."""
        ...

    def outlived(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        """What follows when the deadline or the budget is used up: it has `GRACE_SECONDS` to leave things in order, and
        is asked again behind them (`run.grace`). None: the run ends at once."""
        ...

    # --- state

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        """Takes an event into `run.own` and `run.current.own`, after the common fold has taken it."""
        ...

    def owes(self, run: Run, since: int) -> list[Command]:
        """What only this kind owes the world, as far as entries from `since` on have made it owed."""
        ...

    def arguments(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that a call is sent with, from those that were journaled."""
        ...

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        """The fields of the spec that hold in the run of this call, where that does a part of the run's own work."""
        ...

    # --- what is read

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest: ...

    def frame(self, prompts: Prompts) -> str:
        """The fixed words that its requests hold beside the system prompt and the steps."""
        ...

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        """A finished step as its model reads it; None: as calls of the API, or as a text with observations."""
        ...

    def deed(self, own: KindStep) -> Deed | None:
        """What a step of this kind did beside single calls, if anything."""
        ...

    def as_read(self, spec: AgentSpec, content: str) -> str:
        """The model's answer as it will read it again."""
        ...

    def reads_calls(self, run: Run) -> bool:
        """Whether the model itself reads the outcomes of the calls that are open now."""
        ...

    def tokens(self, run: Run, event: JournalEvent) -> int:
        """Estimated tokens that an event of the kind's own adds to what the model reads, or that the kind adds to a
        model's answer: an upper bound."""
        ...

    def held_tokens(self, run: Run) -> int:
        """Estimated tokens of what the model reads of `run.own` beside the steps: an upper bound."""
        ...

    def images(self, event: JournalEvent) -> list[str]:
        """References of the images that an event of the kind's own brings for the model to see."""
        ...

    def executed(self, event: JournalEvent) -> Execution | None:
        """The work of which an event of the kind's own tells the end."""
        ...

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        """Whether an answer that was cut at the limit of tokens is whole in what it asks for."""
        ...


@functools.cache
def find_kind(name: str, version: int) -> Kind:
    """Return the kind of that name, as it decides in that version. Raises SpecError for one that is not installed."""
    module, _, attribute = declaration_of(name).behavior[version].partition(":")
    found: Kind = getattr(import_module(module), attribute)
    return found


def deciding_kind(spec: AgentSpec) -> Kind:
    """Return the kind that decides the runs of this agent that begin now."""
    name = decided_by(spec)
    return find_kind(name, declaration_of(name).version)


def to_begin(spec: AgentSpec) -> Run:
    """Return a run of the agent that has not begun, to measure its requests."""
    return Run(id="", tree="", spec=spec, decided_by=decided_by(spec))


def kind_of(run: Run) -> Kind:
    """Return the kind that decides a run that has begun."""
    return find_kind(run.decided_by, run.kind_version)


@functools.cache
def _owners() -> dict[type, str]:
    return {kind.step: name for name, kind in declared_kinds().items() if kind.step is not None}


def deed_of(step: ActionStep) -> Deed | None:
    """What the step did beside single calls; a step may come from a run of another kind."""
    if step.own is None:
        return None
    name = _owners()[type(step.own)]
    return find_kind(name, declaration_of(name).version).deed(step.own)
