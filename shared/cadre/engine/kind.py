"""The seam between the common loop and a kind of agent: what the loop asks of a kind, and how it finds one."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cadre.engine.commands import Command
from cadre.engine.graph import agent_graph
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import ActionStep, CallState, Run, Step
from cadre.prompting.prompts import Prompts
from cadre.protocol.codes import EditRefusal
from cadre.protocol.messages import Edit, ErrorInfo, Message
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, TeamReach
from cadre.spec.kinds import decided_by, declaration_of, version_of

if TYPE_CHECKING:
    from cadre.engine.draft import Draft


class StepAccount(NamedTuple):
    """The account of a step's work besides single calls: for the model, for summaries, reports and memories."""

    name: str
    """The name of the work, as a heading: `Code`."""
    text: str
    """The work of the step; calls within it are not listed separately, unless `with_calls` says so."""
    written: str
    """The same as the model reads it in place of its prose."""
    seen: str | None
    """The outcome."""
    nothing: str
    """The text that the model reads when there is no outcome."""
    with_calls: bool = False
    """The step's calls are no part of it: the model reads of them as well."""


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


class Signalled(NamedTuple):
    """A wait is over because of a signal: what `Kind.arrived` gets then."""

    wait: str
    """Name of the wait."""
    signal: str
    payload: Any
    sender: str


class Absent(NamedTuple):
    """A record of the kind's own has waited for too long in the queue of something that is away: what `Kind.arrived`
    gets then."""

    message: str
    """The id that `cadre.engine.timers.away_timer` was given."""


class Kind(ABC):
    """The behavior of one kind of agent, with a default for all but how it begins, what follows from an answer, what
    follows a step, and what its model is asked. Pure: one object for all runs, which knows a run by what it is given.

    A kind decides by the methods of a draft, and keeps state in `run.own` and `run.current.own`, which its `fold`
    alone changes: all common state is changed by the common fold.
    """

    guided: bool = True
    """True if its model decides what is done next. Then `limits.max_steps` bounds the run, calls and answers that lead
    nowhere are counted (`limits.repeats`), and an answer counts only once its model has read the messages that came
    before it. Other kinds bound their runs by something of their own."""

    # --- before anything runs

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        """Return what its section expects of tools, members and tasks. By default it expects nothing, and its model
        reads everything that a task gives."""
        return AgentContract()

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        """Return the lines of a Mermaid flowchart of an agent, for `cadre graph`. By default its tools, members and
        checks are drawn around its model."""
        return agent_graph(spec, "decides what is next")

    # --- decide

    @abstractmethod
    def begin(self, draft: Draft) -> None:
        """Decide what the run does first; it has its task and memories."""

    @abstractmethod
    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        """Decide what follows from the model's answer to the call `draft.asked`."""

    @abstractmethod
    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """Decide what follows when the step in work is over, or when the answer was turned down: `error` is what was
        wrong."""

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        """Decide what follows when calls have their outcomes: one by this very arrival, or all of those that were to be
        made together and were refused. By default the step is over with its last open call."""
        if draft.run.current is not None and not draft.run.open_calls():
            self.go_on(draft)

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        """Decide what follows from a record of the kind's own, or from a wait that is over: a TimerFired of the wait's
        name when its time has come, a Signalled when its signal has. Return False if it is not awaited."""
        return False

    def editable(self, run: Run) -> Editable | None:
        """Return what a person may edit of the run now; None: nothing."""
        return None

    def edit(self, draft: Draft, edit: Edit) -> None:
        """Check an edit of the present version, journal it by `draft.edited`, and decide what follows.

        Raises EditNotAllowed, before anything is decided, for an edit that cannot be made.
        """
        raise EditNotAllowed(f"runs of kind {draft.run.decided_by} have nothing to edit", "not-editable")

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """Return True if the kind sees to the end of the run itself; False: the run ends with this error at once.

        The error's code says why: `max-steps`, the steps are used up; `no-answer`, the model gives no answer to
        `draft.asked` however often it is asked; `cancelled`, a person wants the run to end, which is asked once, or not
        at all if it is to end at once; `deadline` and `budget`, a bound is reached. Behind a bound `draft.begin_grace`
        gives the run GRACE_SECONDS to leave things in order; it is asked again behind them (`run.grace`).
        """
        return False

    # --- state

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        """Take an event into `run.own` and `run.current.own`, after the common fold has taken it."""
        return

    def owed(self, run: Run, since: int) -> list[Command]:
        """Return what only this kind owes the world, as far as entries from `since` on have made it owed."""
        return []

    def arguments(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that a call is sent with, from those that were journaled."""
        return arguments

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        """Return the fields of the spec that hold in the run of this call, where that does a part of the run's own
        work."""
        return {}

    # --- what is read

    @abstractmethod
    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        """Return what the model is asked."""

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        """A finished step as its model reads it; None: as calls of the API, or as a text with observations."""
        return None

    def account(self, own: KindStep) -> StepAccount | None:
        """Return what a step of this kind did in addition to single calls, if anything."""
        raise TypeError(f"{type(self).__name__} has steps with nothing but calls, and no {type(own).__name__}")

    def reads_calls(self, run: Run) -> bool:
        """Return True if the model itself reads the outcomes of the calls that are open now; they are cut to what it
        reads then."""
        return True


@functools.cache
def find_kind(name: str, version: int) -> Kind:
    """Return the kind of that name, as it decides in that version. Raises SpecError for one that is not installed."""
    return _loaded(declaration_of(name).behavior[version])


@functools.cache
def _loaded(path: str) -> Kind:
    module, _, attribute = path.partition(":")
    found: Kind = getattr(import_module(module), attribute)
    return found


def deciding_kind(spec: AgentSpec) -> Kind:
    """Return the kind that decides the runs of this agent that begin now."""
    name = decided_by(spec)
    return find_kind(name, version_of(declaration_of(name)))


def to_begin(spec: AgentSpec) -> Run:
    """Return a run of the agent that has not begun, to measure its requests."""
    return Run(id="", tree="", spec=spec, decided_by=decided_by(spec))


def kind_of(run: Run) -> Kind:
    """Return the kind that decides a run that has begun."""
    return find_kind(run.decided_by, run.kind_version)


def account_of(step: ActionStep) -> StepAccount | None:
    """Return what the step did in addition to single calls; a step may come from a run of another kind."""
    if step.own is None:
        return None
    name = str(type(step.own).__struct_config__.tag)
    return find_kind(name, version_of(declaration_of(name))).account(step.own)


class Editable(NamedTuple):
    """The part of a run that a person may edit now."""

    name: str
    """Its name over HTTP: `queue` or `plan`."""
    version: int
    """Counts up with every change, also those that the run makes itself: an edit names the one that it is based on."""
    state: Any
    """All of it, as JSON."""


class EditNotAllowed(Exception):
    """The edit cannot be made; the text says why, for the person who sent it."""

    def __init__(self, message: str, code: EditRefusal = "invalid-edit") -> None:
        super().__init__(message)
        self.code = code
