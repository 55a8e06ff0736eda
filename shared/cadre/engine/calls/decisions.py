"""What follows from a person's word on a held call, or from its absence."""

from cadre.engine.budget import too_little_for
from cadre.engine.calls.approval import decided, expired
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.call_events import made, shared_out
from cadre.engine.calls.results import settled
from cadre.engine.kind import kind_of
from cadre.engine.parts import is_callers
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import Decision, ErrorInfo
from cadre.protocol.usage import Usage


def on_decision(run: Run, held: CallState, decision: Decision, arrival: Arrival) -> list[ev.AnyEvent]:
    """The call made, made otherwise, turned down, or refused where a member's share of the budget would not pay its
    first request; of a function of the caller, its result. A correction that cannot be made changes nothing: the call
    goes on waiting."""
    try:
        event = decided(run, held, decision)
    except CallNotAllowed as error:
        return [ev.RecordIgnored(kind="Decision", code="invalid-correction", detail=str(error))]
    if held.pause is not None:
        return [event, made(run, held.id, held.name, held.arguments)]
    if decision.verdict == "rejected" or held.kind == "question":
        return [event, *settled(run, held.id, arrival)]
    if is_callers(run, held.name):
        result = ev.ToolAnswered(
            call=held.id, tool=held.name, output=decision.feedback, executor=decision.sender
        )
        return [event, result, *settled(run, held.id, arrival)]
    name = event.name or held.name
    arguments = held.arguments if event.arguments is None else event.arguments
    (begun,) = shared_out(run, [made(run, held.id, name, arguments)], Usage())
    unpaid = _unpaid(run, name, begun)
    if unpaid is not None:
        refused = ev.CallRefused(call=held.id, name=name, arguments=arguments, error=unpaid)
        return [event, refused, *settled(run, held.id, arrival)]
    return [event, begun]


def _unpaid(run: Run, name: str, begun: ev.AnyEvent) -> ErrorInfo | None:
    """Why the member is not begun, for a model to read; where no model reads it, it is begun with what there is."""
    if not isinstance(begun, ev.DelegateStarted) or not kind_of(run).reads_calls(run):
        return None
    return too_little_for(run.members[name], begun)


def on_expiry(run: Run, held: CallState, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows when a held call expires."""
    return [expired(held), *settled(run, held.id, arrival)]
