"""A decision while it is made: each event is true of the run as soon as it is decided, so that the next one is decided
in the state behind it.

The methods are what the kinds of agents may do. The rules common to all kinds stand here: no kind can forget a check,
an approval, a budget, the room in the context, or the end of a step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cadre.engine.answers.answer_checks import check_calls, problem_with
from cadre.engine.budget import GRACE_SECONDS, over_bounds
from cadre.engine.calls.open_calls import RunPart, opened_calls
from cadre.engine.calls.repeats import is_failing_alike, is_stuck
from cadre.engine.context.context_budget import is_full, may_have_room, no_room, to_cover
from cadre.engine.fold import apply, partial_result_of
from cadre.engine.kind import Kind, find_kind
from cadre.engine.model_request import fallback_of_call, made_to
from cadre.engine.policies.rules import asks_for_plan
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.parts import JournalEvent
from cadre.journal.run import SUMMARY, CallState, Postponed, Run
from cadre.prompting.python_types import named_in_code
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import Edit, ErrorInfo, RunState
from cadre.protocol.policy import PLAN_TOOLS
from cadre.protocol.topology import call_id
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of
from cadre.spec.names import FINAL_ANSWER

Tap = Callable[[Run, ev.AnyEvent], None]
"""Called with each event and the run in the state before it."""

_ENDS: dict[ErrorCode, RunState] = {"cancelled": "cancelled", "max-steps": "max_steps_error"}
"""States of runs that end with an error, by its code; `error` for all others."""

_WITHOUT_FINDINGS: tuple[ErrorCode, ...] = ("cancelled", "no-answer")
"""Errors of runs that end without what they have found until then."""


class Draft:
    """One decision about `run`, which it changes. Behind the event that ends the run, all methods do nothing."""

    def __init__(self, run: Run, arrival: Arrival, tap: Tap | None = None) -> None:
        self.run, self.arrival = run, arrival
        self.at = arrival.at
        """The time of the arrival in Unix seconds."""
        self.events: list[ev.AnyEvent] = []
        """The events decided so far."""
        self.asked = run.model
        """The model call that was in flight as the arrival came."""
        self.is_over = False
        """True once this decision has ended the run."""
        self._closed: list[list[str]] = []
        """Ids of calls that were to be made together and have all ended at once: refused, or plans of tools."""
        self._tap = tap

    # --- what a kind reads

    @property
    def spec(self) -> AgentSpec:
        assert self.run.spec is not None
        return self.run.spec

    @property
    def kind(self) -> Kind:
        return find_kind(self.run.decided_by, self.run.kind_version)

    @property
    def step(self) -> int:
        """Return the number of the step in work, or of the last one."""
        run = self.run
        if run.current is not None:
            return run.current.number
        return run.model.step if run.model is not None else run.step

    @property
    def first_step(self) -> int:
        """Return the number of the run's first step: 1, or the one that a fork begins with."""
        task = self.run.task
        return task.forks.at if task is not None and task.forks is not None else 1

    def event_of(self, call: CallState) -> ev.AnyEvent:
        """Return the latest event of this decision about the call."""
        return next(event for event in reversed(self.events) if getattr(event, "call", "") == call.id)

    def found(self) -> str | None:
        """Return what the run has found until now, as the output of a run that goes no further."""
        return partial_result_of(self.run)

    # --- what a kind decides

    def note(self, event: JournalEvent) -> None:
        """Journal an event of the kind's own."""
        self.emit(event)

    def edited(self, edit: Edit) -> None:
        """Journal a person's edit: it is made."""
        self.emit(ev.EditApplied(base=edit.base, operations=edit.operations, sender=edit.sender))

    def ask(self, purpose: str, step: int, attempt: int = 1) -> None:
        """Ask the model, for one of `Kind.purposes`. Beyond the run's last step it is given up (`max-steps`).

        `step` is the number of the step that the answer belongs to, from 1; `attempt` counts up where the kind itself
        asks once more for the same answer.
        """
        if self.is_over:
            return
        if self.kind.guided and step > self.run.max_steps:
            self.give_up(ErrorInfo("max-steps", f"Reached the limit of {self.run.max_steps} steps."))
        else:
            self.call_model(purpose, step, attempt)

    def call(
        self,
        requests: Sequence[ev.RequestedCall | RunPart],
        *,
        approved: bool = False,
        may_repeat: bool = False,
    ) -> None:
        """Make calls in the step in work: each is checked separately, and made, held for approval or refused. Once the
        kind has decided, `Kind.settled` gets those of which all were refused.

        Args:
            requests: calls of tools and members, and parts of the run's own work.
            approved: a person has agreed to them already, so no policy holds them.
            may_repeat: they are the kind's own, and may come to the same result any number of times.
        """
        if self.is_over:
            return
        run = self.run
        opened = opened_calls(run, self.arrival, requests, approved=approved, may_repeat=may_repeat)
        refused = 0
        for one in opened:
            refused += type(one.event) is ev.CallRefused and one.event.error.code == "loop"
        if refused and (stuck := is_stuck(run, refused)) is not None:
            self.stop("error", self.found(), stuck)
            return
        ids: list[str] = []
        for event, ruled in opened:
            if ruled is not None:
                self.emit(ruled)
            if type(event) is ev.ToolCalled and event.tool == PLAN_TOOLS:
                self.plan_by_call(event)
            else:
                self.emit(event)
            ids.append(event.call)
        if not {*ids}.intersection([call.id for call in run.open_calls()]):
            self._closed.append(ids)

    def plan(self, tools: Sequence[str], *, by_person: bool = False) -> None:
        """Journal the tools and members that the run is going to use, where its policies ask for that: before anything
        was read, or on a person's word."""
        facts = self.run.facts
        if facts is None or not (facts.may_plan or by_person) or not asks_for_plan(self.run.policies):
            return
        further = [tool for tool in dict.fromkeys(tools) if tool not in (facts.plan or ())]
        if further:
            self.emit(ev.ToolsPlanned(tools=further))

    def plan_by_call(self, call: ev.ToolCalled) -> None:
        """Make a call of `plan_tools`, which the run answers itself."""
        self.emit(call)
        in_code = named_in_code([*self.run.tools.values(), *self.run.members.values()])
        said = self.kind.arguments(self.run, call.arguments)["tools"]
        tools = [in_code[one].name if one in in_code else one for one in said]
        self.emit(ev.ToolsPlanned(tools=tools))
        self.emit(ev.ToolAnswered(call=call.call, tool=call.tool, output=f"Planned: {', '.join(tools) or 'none'}."))

    def drop(self, reason: str) -> None:
        """Give up all open calls of the step in work: their workers are asked to stop."""
        for call in self.run.open_calls():
            self.emit(ev.CallDropped(call=call.id, reason=reason))

    def answer(self, value: Any, arguments: dict[str, Any] | None = None) -> None:
        """Propose the run's answer: it counts once it fits the output schema and has passed the agent's checks.

        `arguments` are those of `final_answer`, where the model has called it; its call is the step's first then.
        """
        if self.is_over:
            return
        problem = self.callers_problem() or problem_with(self.run, value) or self.unread_problem()
        if problem is not None:
            self.turn_down(problem, arguments)
        elif checks := check_calls(self.run, self.step, value, arguments):
            for event in checks:
                self.emit(event)
        else:
            self.give(value)

    def begin_step(self, step: int, name: str = "", attempt: int = 1) -> None:
        """Begin a step that no model call begins; `name` is what the kind calls it, `step` its number, from 1."""
        self._note_toolset()
        self.emit(ev.StepStarted(step=step, name=name, attempt=attempt))

    def end_step(self, error: ErrorInfo | None = None) -> None:
        """End the step in work. A run that goes in circles ends with it."""
        if self.is_over:
            return
        run = self.run
        circles = is_failing_alike(run, error) if error is not None else None
        self.emit(ev.StepFinished(step=self.step, error=error))
        if circles is not None:
            self.stop("error", self.found(), circles)

    def stop(self, state: RunState, output: Any = None, error: ErrorInfo | None = None) -> None:
        """End the run now, without checks of its output."""
        if self.is_over:
            return
        run = self.run
        left = run.own.not_undone if error is not None and run.own is not None else []
        if error is not None and left:
            text = error.message.removesuffix(".")
            text = f"{text}. What these steps did was not undone: {', '.join(left)}."
            error = msgspec.structs.replace(error, message=text, not_undone=tuple(left))
        end = ev.RunFinished(state=state, output=output, error=error, steps=run.step, usage=run.usage)
        self.emit(end)

    def wait(self, name: str, until: float | None = None, signal: str | None = None) -> None:
        """Wait until a time, for a signal from outside, or for either, seconds or months. Nothing is held meanwhile.

        `Kind.arrived` gets a TimerFired of this name when the time has come, a Signalled when the signal has. A signal
        that came before the wait ends it at once; of several waits for one signal the oldest takes it.

        Args:
            name: the wait's name.
            until: Unix seconds; None: the clock does not end it.
            signal: the signal's name; None: no signal ends it.
        """
        assert until is not None or signal is not None, f"nothing would end the wait {name!r}"
        self.emit(ev.WaitStarted(name=name, until=until, signal=signal))

    def hold(
        self,
        name: str,
        question: str,
        expires_at: float | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Put a question to a person, in the step in work; it is settled like a call, with the person's word.

        Args:
            name: what the question is called.
            question: its text.
            expires_at: Unix seconds; None: the question waits for ever.
            arguments: the subject of the question. `calls` in it (name and arguments of each) may be edited by the
                decision.
        """
        run = self.run
        made = len(run.current.calls) if run.current is not None else 0
        asked = ev.ApprovalRequested(
            call=call_id(run.id, self.step, made),
            name=name,
            kind="question",
            arguments=arguments or {},
            reason=question,
            expires_at=expires_at,
        )
        self.emit(asked)

    def begin_grace(self, error: ErrorInfo) -> None:
        """Take the time to leave things in order, once the run is beyond its deadline or budget (`Kind.ending`)."""
        if not self.run.grace and error.code in ("deadline", "budget"):
            self.emit(ev.GraceStarted(error=error, until=self.at + GRACE_SECONDS))

    # --- what the loop decides

    def emit(self, event: ev.AnyEvent) -> None:
        """Journal an event, and make it true of the run."""
        if self.is_over:
            return
        if self._tap is not None:
            self._tap(self.run, event)
        self.events.append(event)
        apply(self.run, event, self.run.entries, self.arrival.at)
        self.is_over = type(event) is ev.RunFinished

    def give_up(self, error: ErrorInfo) -> None:
        """End the run with the error, unless its kind sees to the end itself."""
        if self.is_over or self.kind.ending(self, error):
            return
        found = None if error.code in _WITHOUT_FINDINGS else self.found()
        self.stop(_ENDS.get(error.code, "error"), found, error)

    def settle_closed(self) -> bool:
        """Have the kind decide what follows from calls that have all ended at once. Return False without such calls."""
        if self.is_over or not self._closed:
            return False
        ids = self._closed.pop(0)
        current = self.run.current
        self.kind.settled(self, [call for call in current.calls if call.id in ids] if current else [])
        return True

    def call_model(
        self,
        purpose: str,
        step: int,
        attempt: int = 1,
        postponed: Postponed | None = None,
        *,
        fallback: int | None = None,
        reason: str = "",
    ) -> None:
        """Ask the model within the run's bounds and the room in its context; a summary may have to come first.

        Args:
            purpose: why it is asked.
            step: the step that the answer belongs to, from 1.
            attempt: counts the calls for the same answer, from 1.
            postponed: the call that a summary makes room for.
            fallback: the model to ask, 0 for the first; None: the next in turn.
            reason: why the model before is not asked again.
        """
        if self.is_over:
            return
        run = self.run
        self._note_toolset()
        chosen = fallback_of_call(run, self.at, attempt) if fallback is None else fallback
        called = ev.ModelCalled(
            purpose=purpose, step=step, attempt=attempt, cause=self.arrival.cause, postponed=postponed
        )
        called = made_to(run, called, chosen, reason)
        if self._lacks_room(called):
            if to_cover(run, run.unread) is not None:
                called = _summary_before(run, called)
            elif not may_have_room(run):
                self.stop("error", error=no_room(run))
                return
        if (error := over_bounds(run, self.at)) is not None:
            self.give_up(error)
        else:
            self.emit(called)

    def give(self, answer: Any) -> None:
        """End the run with its answer, which counts."""
        self.end_step()
        self.stop("success", answer)

    def turn_down(self, text: str, arguments: dict[str, Any] | None) -> None:
        """Go on from a proposed answer that did not pass: the model reads why."""
        error = ErrorInfo("not-passed", text)
        if arguments is None:
            self.kind.go_on(self, error)
            return
        first = call_id(self.run.id, self.step, 0)
        self.emit(ev.CallRefused(call=first, name=FINAL_ANSWER, arguments=arguments, error=error))
        self.kind.go_on(self)

    def callers_problem(self) -> str | None:
        """Return why an answer does not count where the caller wants calls of its functions; None if it does."""
        run = self.run
        if run.task is None or not run.task.terms.ends_with_call:
            return None
        if not self.kind.guided or self.step >= run.max_steps:
            return None
        names = ", ".join(tool.name for tool in run.task.terms.tools)
        return f"An answer is not what was asked for. Call one of these functions: {names}."

    def unread_problem(self) -> str | None:
        """Return why an answer does not count yet that was made without knowing of a message; None if it does."""
        run = self.run
        if not run.unread or not self.kind.guided or self.step >= run.max_steps:
            return None
        return f"The answer does not count yet: message {run.messages} came in before. Read what is new, then answer."

    def _note_toolset(self) -> None:
        """Journal what the model may call, where it differs from what the run knows."""
        run, toolset = self.run, self.arrival.toolset
        known = (run.tools, run.members, run.missing, run.checks_with_calls)
        if (toolset.tools, toolset.members, toolset.missing, toolset.checks_with_calls) == known:
            return
        changed = ev.ToolsetChanged(
            tools=list(toolset.tools.values()),
            members=list(toolset.members.values()),
            missing=toolset.missing,
            checks_with_calls=toolset.checks_with_calls,
            fixed_tokens=self.arrival.base_with_toolset,
        )
        self.emit(changed)

    def _lacks_room(self, called: ev.ModelCalled) -> bool:
        """Return True if the context may have no room for the call. Looked at once for each request that has grown."""
        if called.purpose == SUMMARY or not facts_of(self.spec, self.run.decided_by).reads_steps:
            return False
        decided = {*map(type, self.events)}
        if ev.ContextOverflowed in decided:
            return True
        has_grown = called.attempt == 1 or bool(self.run.unread)
        return has_grown and ev.HistorySummarized not in decided and is_full(self.run)


def _summary_before(run: Run, called: ev.ModelCalled) -> ev.ModelCalled:
    """Return a request for a summary, to the same model, in place of the call."""
    before = run.summary
    attempt = before.attempt + 1 if before is not None and before.step == called.step else 1
    postponed = Postponed(called.purpose, called.attempt)
    return msgspec.structs.replace(called, purpose=SUMMARY, attempt=attempt, postponed=postponed)
