"""One decision as the journal keeps it."""

from collections.abc import Sequence

from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, Poisoned
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.loop.arrival_of import arrived_of
from cadre.protocol.messages import Task


def entry_of(
    run: Run,
    arrival: Arrival,
    events: list[ev.AnyEvent],
    cause: str,
    prev: Sequence[int] = (),
    snapshot: bool = False,
) -> Entry:
    """The entry of what the arrival has made true of the run.

    `cause` is the id of the record that it accounts for, or of the model's answer; `prev` the stream sequences of the
    entries since the last snapshot. With `snapshot` it holds the state before it.
    """
    first = events[0]
    about = first if type(first) is ev.RunAccepted else run
    return Entry(
        kind=about.decided_by,
        kind_version=about.kind_version,
        tree=run.tree,
        run=run.id,
        agent=arrival.spec.name,
        parent=_parent(run, arrival.what),
        n=run.entries + 1,
        cause=cause,
        at=arrival.at,
        arrived=arrived_of(arrival.what, events, cause),
        events=events,
        snapshot=run if snapshot else None,
        prev=list(prev),
    )


def _parent(run: Run, what: object) -> str | None:
    """The run that delegated this one; a task that begins the run says it first."""
    task = what.task if type(what) is Poisoned else what
    if type(task) is Task:
        return task.reply_to.run if task.reply_to is not None else None
    return run.parent
