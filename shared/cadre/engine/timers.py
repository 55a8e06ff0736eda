"""The waits of a run that end by the clock: each is a separate message schedule, named only here."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cadre.journal.run import CallState, Phase, Run
from cadre.protocol.messages import TimerFired, round_id
from cadre.protocol.topology import timer_id

_DEADLINE, _GRACE = "deadline", "grace"

_CALL = "call-"
_AWAY, _LEFT = "away-", "left-"
_APPROVAL = "approval-"
_KIND = "kind-"
_RESUME = "resume-"


class PendingWait(NamedTuple):
    """Something that a run waits for by the clock."""

    name: str
    due: float
    """Unix seconds."""
    since: int
    """Entry that began it."""


def deadline_timer(run: Run) -> str:
    """Name of the timer that ends the run: that of its deadline, or of the grace behind it."""
    return _GRACE if run.grace else _DEADLINE


def fired(run: Run, name: str, due: float) -> TimerFired:
    """Return what arrives when that timer of the run goes off."""
    return TimerFired(id=timer_id(run.id, name), tree=run.tree, run=run.id, name=name, at=due)


def deadline_fired(run: Run) -> TimerFired:
    """The same of the timer that ends the run, which has a deadline."""
    assert run.deadline is not None
    return fired(run, deadline_timer(run), run.deadline)


def call_timer(call: str) -> str:
    """Name of the timer of a call that may take too long."""
    return f"{_CALL}{call}"


def away_timer(message: str, *, begun: bool) -> str:
    """Name of the timer that ends a call whose callee is away, by the id of the message that waits in its queue, or of
    the block of code. `begun`: an executor had taken it before."""
    return f"{_LEFT if begun else _AWAY}{message}"


def away_of(timer: str) -> tuple[str, Literal["away", "left"]] | None:
    """Return what such a timer is for, and the code of `call.timed_out` that follows; None for any other timer."""
    if timer.startswith(_AWAY):
        return timer.removeprefix(_AWAY), "away"
    return (timer.removeprefix(_LEFT), "left") if timer.startswith(_LEFT) else None


def approval_timer(call: str) -> str:
    """Name of the timer of a held call that expires."""
    return f"{_APPROVAL}{call}"


def resume_timer(call: CallState) -> str:
    """Name of the timer that ends the pause of a call: each pause has its own."""
    return f"{_RESUME}{round_id(call.id, call.resumes.round if call.resumes is not None else 0)}"


def call_of(timer: str, kind: str) -> str | None:
    """Return what the timer is about: a call (kind `call`), a held call (`approval`), a wait of the agent's kind
    (`kind`).
    """
    prefix = f"{kind}-"
    return timer[len(prefix) :] if timer.startswith(prefix) else None


def kind_wait_of(run: Run, timer: str) -> str | None:
    """The wait of the agent's kind that the timer is about; None if it does not wait (any more)."""
    name = call_of(timer, "kind")
    return name if name in run.waits else None


def waits(run: Run) -> list[PendingWait]:
    """All that are running, but for the pause before a model call (see `Deferral`)."""
    found = []
    if run.deadline is not None:
        found.append(PendingWait(deadline_timer(run), run.deadline, run.grace or run.accepted))
    if run.recalling is not None:
        found.append(PendingWait(call_timer(run.recalling.call), run.recalling.due, run.recalling.since))
    for name, wait in run.waits.items():
        if wait.until is not None:
            found.append(PendingWait(f"{_KIND}{name}", wait.until, wait.since))
    for call in run.current.calls if run.current is not None else ():
        if not call.is_open:
            continue
        if call.hold is not None and call.hold.expires_at is not None:
            found.append(PendingWait(approval_timer(call.id), call.hold.expires_at, call.hold.since))
        if call.pause is not None and call.pause.until is not None:
            found.append(PendingWait(resume_timer(call), call.pause.until, call.pause.since))
        if call.opened and call.due is not None:
            found.append(PendingWait(call_timer(call.id), call.due, call.opened))
    return found


def running(run: Run) -> list[str]:
    """Return the names of all timers that the run has set, the deadline's first."""
    if run.phase is Phase.DONE:
        return []
    names = [wait.name for wait in waits(run)]
    return [*names, run.deferral.timer] if run.deferral is not None else names


def ended(before: Sequence[str], run: Run, gone: str | None = None) -> str | None:
    """Return the timer that an entry makes needless before it has gone off, to be removed by the same append.

    An append can remove one. Of several the deadline goes first, as it would go off last; another finds its run over
    and is accounted for without consequence.

    Args:
        before: the timers that ran before the entry.
        run: in the state behind it.
        gone: the timer that has gone off just now.
    """
    if not before:
        return None
    now = running(run)
    return next((name for name in before if name != gone and name not in now), None)
