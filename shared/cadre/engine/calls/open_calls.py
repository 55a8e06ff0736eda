"""Calls that a model, or its code, asks for: each made, held back for a person, or refused on its own."""

from typing import Any

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.budget import too_little_for
from cadre.engine.calls.approval import hold
from cadre.engine.calls.call_check import CallNotAllowed, check_call, check_delegation
from cadre.engine.calls.call_events import made, shared_out
from cadre.engine.calls.repeats import is_stuck, refusal_of, refused_alike
from cadre.engine.kind import kind_of
from cadre.engine.moves import Call, RefusedCall, RunPart
from cadre.engine.steps import step_in_work
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.topology import call_id
from cadre.protocol.usage import Usage

ALONE = (
    "`final_answer` must be the only call of a step: the other calls of this step are being made."
    " Read their results first, then answer."
)


def open_calls(
    run: Run,
    arrival: Arrival,
    move: Call,
    spent: Usage,
) -> tuple[list[ev.AnyEvent], ErrorInfo | None]:
    """An event for each call, and why the run must end when its calls lead nowhere.

    `spent` is what the arrival in hand adds to the run's usage.
    """
    calls = move.requests
    step, first = step_in_work(run), len(run.current.calls) if run.current is not None else 0
    opened = [
        _open(run, arrival, call, call_id(run.id, step, index), move)
        for index, call in enumerate(calls, first)
    ]
    repeated = sum(isinstance(event, ev.CallRefused) and event.error.code == "loop" for event in opened)
    if run.budget is not None:
        shared = zip(calls, shared_out(run, opened, spent), strict=True)
        opened = [_afforded(run, call, event) for call, event in shared]
    return opened, is_stuck(run, repeated)


def _afforded(run: Run, call: ev.RequestedCall | RunPart, event: ev.AnyEvent) -> ev.AnyEvent:
    """The event, or a refusal in place of a member whose share of the budget would not pay its first request."""
    if not isinstance(event, ev.DelegateStarted) or isinstance(call, RunPart):
        return event
    error = too_little_for(run.members[event.member], event)
    if error is None:
        return event
    arguments = read_arguments(call)
    return ev.CallRefused(call=event.call, name=call.name, arguments=arguments, error=error)


def _open(
    run: Run, arrival: Arrival, call: ev.RequestedCall | RunPart, call_id: str, move: Call
) -> ev.AnyEvent:
    if isinstance(call, RunPart):
        return _open_part(run, call, call_id)
    arguments: dict[str, Any] = {}
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, kind_of(run).arguments(run, arguments))
    except (ReadingError, CallNotAllowed) as error:
        refusal = refused_alike(run, call.name, arguments, error.info) or error.info
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=refusal)
    if call.name not in run.tools and call.name not in run.members:
        alone = ErrorInfo("invalid-call", ALONE)
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=alone)
    if isinstance(call, RefusedCall):
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=call.error)
    counts = kind_of(run).stops_repeats and not move.may_repeat
    repeated = refusal_of(run, call.name, arguments) if counts else None
    if repeated is not None:
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=repeated)
    held = None if move.approved else hold(run, arrival, call_id, call.name, arguments)
    return held if held is not None else made(run, call_id, call.name, arguments)


def _open_part(run: Run, part: RunPart, call: str) -> ev.AnyEvent:
    try:
        check_delegation(run, run.agent, is_part=True)
    except CallNotAllowed as error:
        return ev.CallRefused(call=call, name=run.agent, error=error.info)
    return ev.DelegateStarted(call=call, member=run.agent, task=part.task, inputs=part.inputs)
