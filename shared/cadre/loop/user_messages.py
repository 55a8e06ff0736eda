"""Messages of people to a run under way: kept for the next model call, which they may bring about."""

from cadre.engine.carry_out import carry_out
from cadre.engine.kind import kind_of
from cadre.engine.steps import begin_model_call
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import SUMMARY, Phase, Run
from cadre.loop.guards import run_after
from cadre.protocol.messages import ErrorInfo, UserMessage

MAX_UNREAD_MESSAGES = 64
"""Messages that a run keeps for its next model call; the next one is refused."""


def on_message(run: Run, message: UserMessage, arrival: Arrival) -> list[ev.AnyEvent]:
    """The message as it is kept, or why it is not, and what it puts aside to be read sooner."""
    if len(run.unread) >= MAX_UNREAD_MESSAGES:
        return [ev.RecordIgnored(kind="UserMessage", code="messages-full")]
    received = ev.MessageReceived(text=message.text, mode=message.mode, sender=message.sender)
    model = run.model
    if message.mode == "interrupt" and model is not None and model.purpose != SUMMARY:
        again = begin_model_call(
            run, arrival, model.purpose, model.step, attempt=model.attempt + 1, postponed=model.postponed
        )
        return [received, *again]
    if message.mode != "append" and run.phase is Phase.ACTING:
        return [received, *_put_aside(run, received, arrival)]
    return [received]


def _put_aside(run: Run, received: ev.MessageReceived, arrival: Arrival) -> list[ev.AnyEvent]:
    """The calls that have not begun are given up: they wait for a person, or for their turn. What the model does not
    read itself goes on: a block of code, checks of its answer, questions of its kind."""
    if run.proposal is not None or not kind_of(run).reads_calls(run):
        return []
    waiting = [call for call in run.open_calls() if not call.opened and call.kind in ("tool", "member")]
    error = ErrorInfo("skipped", "This call was not made: a message came that is to be read first.")
    given_up: list[ev.AnyEvent] = [
        ev.CallRefused(call=call.id, name=call.name, arguments=call.arguments, error=error)
        for call in waiting
    ]
    after = run_after(run, [received, *given_up], arrival.at)
    if not given_up or after.open_calls():
        return given_up
    return [*given_up, *carry_out(after, arrival, kind_of(after).refused(after, given_up, arrival))]
