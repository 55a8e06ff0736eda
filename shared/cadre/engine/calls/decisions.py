"""What follows from a person's word on a held call, or from its absence."""

from cadre.engine.calls.approval import decided, expired
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.call_events import made, shared_out
from cadre.engine.calls.results import settled
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import Decision, Usage


def on_decision(run: Run, held: CallState, decision: Decision, arrival: Arrival) -> list[ev.AnyEvent]:
    """The call made, made otherwise, or turned down. A correction that cannot be made changes nothing: the call
    goes on waiting."""
    try:
        event = decided(run, held, decision)
    except CallNotAllowed as error:
        return [ev.RecordIgnored(kind="Decision", reason=f"the correction cannot be made: {error}")]
    if decision.verdict == "rejected" or held.kind == "question":
        return [event, *settled(run, held.id, arrival)]
    name = event.name or held.name
    arguments = held.arguments if event.arguments is None else event.arguments
    return [event, *shared_out(run, [made(run, held.id, name, arguments)], Usage())]


def on_expiry(run: Run, held: CallState, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows when a held call expires."""
    return [expired(held), *settled(run, held.id, arrival)]
