"""One decision as the journal keeps it."""

from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.loop.arrival_of import arrived_of


def entry_of(
    run: Run,
    arrival: Arrival,
    events: list[ev.AnyEvent],
    cause: str,
    prev: str = "",
) -> Entry:
    """Return the entry of what the arrival has made true of the run, which is behind it.

    `cause` is the id of the record that it accounts for, or of the model's answer; `prev` the packed back-pointers.
    """
    return Entry(
        kind=run.decided_by,
        kind_version=run.kind_version,
        run=run.id,
        agent=arrival.spec.name,
        n=run.entries,
        cause=cause,
        at=arrival.at,
        arrived=arrived_of(arrival.what, events, cause),
        events=events,
        prev=prev,
    )
