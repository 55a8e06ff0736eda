"""From moves to events: a kind of agent says what it wants to do, and the rules common to all kinds say what becomes
of it. No kind can forget a check, an approval, a budget or the end of a step."""

from typing import Any, assert_never

import msgspec

from cadre.engine.answers.answer_checks import check_calls, given, problem_with
from cadre.engine.calls.open_calls import open_calls
from cadre.engine.calls.repeats import deed_in, is_failing_alike
from cadre.engine.kind import kind_of
from cadre.engine.moves import (
    Answer,
    Ask,
    BeginStep,
    Call,
    Drop,
    EndStep,
    Hold,
    Moves,
    Note,
    Stop,
    Wait,
)
from cadre.engine.partial_result import partial_result_of
from cadre.engine.steps import begin_model_call, finished, news_of_the_offer, step_in_work, still_open
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.parts import KindState
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.topology import call_id
from cadre.protocol.usage import Usage

NO_USAGE = Usage()


def carry_out(run: Run, arrival: Arrival, moves: Moves, spent: Usage = NO_USAGE) -> list[ev.AnyEvent]:
    """The events of the moves, in order. `run` has begun; `spent` is what the arrival in hand adds to its usage."""
    events: list[ev.AnyEvent] = []
    for move in moves:
        match move:
            case Note(event):
                events.append(event)
                spent += event.used() or NO_USAGE
            case Ask(purpose, step, attempt) if step <= run.max_steps or not kind_of(run).counts_steps:
                events += begin_model_call(run, arrival, purpose, step, attempt=attempt)
            case Ask(_, step):
                events += _last_word(run, arrival, step - 1)
            case Call():
                opened, stuck = open_calls(run, arrival, move, spent)
                if stuck is not None:
                    return [*events, finished(run, "error", output=partial_result_of(run), error=stuck)]
                events += opened
                if all(isinstance(event, ev.CallRefused) for event in opened):
                    events += carry_out(run, arrival, kind_of(run).refused(run, opened, arrival))
            case Drop(reason):
                open_calls_left = still_open(run, arrival)
                events += [ev.CallDropped(call=call.id, reason=reason) for call in open_calls_left]
            case Answer(value, arguments):
                events += _propose(run, arrival, value, arguments)
            case BeginStep(step, name, attempt, own):
                events += news_of_the_offer(run, arrival)
                events.append(ev.StepStarted(step=step, name=name, attempt=attempt))
                run = _as_begun(run, arrival, step, own)
            case EndStep(error):
                events.append(ev.StepFinished(step=step_in_work(run), error=error))
                circles = is_failing_alike(run, _deed_in_work(run, arrival), error) if error else None
                if circles is not None:
                    return [*events, finished(run, "error", output=partial_result_of(run), error=circles)]
            case Stop(state, output, error):
                events.append(finished(run, state, output=output, error=error))
            case Wait(name, until, signal):
                assert until is not None or signal is not None, f"nothing would end the wait {name!r}"
                events.append(ev.WaitStarted(name=name, until=until, signal=signal))
            case Hold():
                events.append(_question(run, events, move))
            case _:
                assert_never(move)
    return events


def _as_begun(run: Run, arrival: Arrival, step: int, own: KindState | None) -> Run:
    """The run in a step that begins with this arrival. It shares what it does not change with the other."""
    offer = arrival.offer
    return msgspec.structs.replace(
        run,
        tools=offer.tools,
        members=offer.members,
        missing=offer.missing,
        step=step,
        current=ActionStep(number=step, started_at=arrival.at),
        model=None,
        proposal=None,
        own=own or run.own,
    )


def unread_problem(run: Run) -> str | None:
    """Why an answer does not count yet that was made without knowing of a message; None when it does."""
    last = kind_of(run).counts_steps and step_in_work(run) >= run.max_steps
    if not run.unread or last or not kind_of(run).answers_messages:
        return None
    return f"The answer does not count yet: message {run.messages} came in before. Read what is new, then answer."


def answer_turned_down(run: Run, arrival: Arrival, text: str) -> list[ev.AnyEvent]:
    """What follows from a proposed answer that did not pass: the model is told why, and the loop goes on."""
    arguments = run.proposal.arguments if run.proposal is not None else None
    return _turned_down(run, arrival, arguments, text)


def _deed_in_work(run: Run, arrival: Arrival) -> str:
    """What was done in the step that ends, else what the model wrote, as it would read it again."""
    if isinstance(arrival.what, ModelReplied) and run.spec is not None:
        return kind_of(run).as_read(run.spec, arrival.what.content)
    return deed_in(run.current) if run.current is not None else ""


def _last_word(run: Run, arrival: Arrival, step: int) -> list[ev.AnyEvent]:
    """The steps are used up; the model is asked all the same where the kind says so."""
    events: list[ev.AnyEvent] = []
    for move in kind_of(run).last_word(run, step, arrival):
        if isinstance(move, Ask):
            events += begin_model_call(run, arrival, move.purpose, move.step)
        else:
            events += carry_out(run, arrival, [move])
    return events


def _propose(run: Run, arrival: Arrival, value: Any, arguments: dict[str, Any] | None) -> list[ev.AnyEvent]:
    """The end of the run, calls of the tools that check the answer, or what follows when it is turned down."""
    problem = problem_with(run, value) or unread_problem(run)
    if problem is not None:
        return _turned_down(run, arrival, arguments, problem)
    return check_calls(run, value, arguments) or given(run, value)


def _turned_down(
    run: Run, arrival: Arrival, arguments: dict[str, Any] | None, text: str
) -> list[ev.AnyEvent]:
    error = ErrorInfo("not-passed", text)
    kind = kind_of(run)
    if arguments is None:
        return carry_out(run, arrival, kind.went(run, arrival, error))
    first = call_id(run.id, step_in_work(run), 0)
    refused = ev.CallRefused(call=first, name=FINAL_ANSWER, arguments=arguments, error=error)
    return [refused, *carry_out(run, arrival, kind.went(run, arrival))]


def _question(run: Run, events: list[ev.AnyEvent], question: Hold) -> ev.ApprovalRequested:
    """Its id follows those of the calls that the step has, and of the questions before it."""
    made = len(run.current.calls) if run.current is not None else 0
    made += sum(
        isinstance(event, ev.ApprovalRequested | ev.ToolCalled | ev.DelegateStarted) for event in events
    )
    return ev.ApprovalRequested(
        call=call_id(run.id, step_in_work(run), made),
        name=question.name,
        kind="question",
        arguments=question.arguments,
        reason=question.question,
        expires_at=question.expires_at,
    )
