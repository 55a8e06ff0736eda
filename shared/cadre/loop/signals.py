"""Signals from outside, and the waits that they end: a wait that stands already, or one that begins later."""

from cadre.engine.carry_out import carry_out
from cadre.engine.kind import kind_of
from cadre.engine.moves import Signalled
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Phase, Run
from cadre.loop.fold import apply
from cadre.loop.guards import run_after
from cadre.protocol.messages import Signal

MAX_KEPT_SIGNALS = 64
"""Signals that a run keeps for later waits; the next one is refused."""


def on_signal(run: Run, signal: Signal) -> list[ev.AnyEvent]:
    """The signal as it is kept, or why it is not. `end_signalled_waits` adds what follows from it."""
    if len(run.signals) >= MAX_KEPT_SIGNALS:
        return [ev.RecordIgnored(kind="Signal", code="signals-full")]
    return [ev.SignalReceived(name=signal.name, payload=signal.payload, sender=signal.sender)]


def end_signalled_waits(run: Run, events: list[ev.AnyEvent], arrival: Arrival) -> list[ev.AnyEvent]:
    """The events, and the ends of the waits whose signal is there, with what the agent's kind makes of them."""
    if not any(map(_may_end_wait, events)):
        return events
    after = run_after(run, events, arrival.at)
    while after.phase is not Phase.DONE and (over := _first_over(after)) is not None:
        ended = ev.WaitFinished(name=over.wait, signal=over.signal)
        _apply_all(after, [ended], arrival.at)
        more = carry_out(after, arrival, kind_of(after).arrived(after, over, arrival) or [])
        _apply_all(after, more, arrival.at)
        events = [*events, ended, *more]
    return events


def _may_end_wait(event: ev.AnyEvent) -> bool:
    """Whether a signal has come, or a wait for one begins."""
    return type(event) is ev.SignalReceived or (type(event) is ev.WaitStarted and event.signal is not None)


def _first_over(run: Run) -> Signalled | None:
    """The oldest wait whose signal is there."""
    for name, wait in run.waits.items():
        for kept in run.signals:
            if kept.name == wait.signal:
                return Signalled(name, kept.name, kept.payload, kept.sender)
    return None


def _apply_all(run: Run, events: list[ev.AnyEvent], at: float) -> None:
    for event in events:
        apply(run, event, run.entries + 1, at)
