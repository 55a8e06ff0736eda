"""One line in the log for the beginning of a run and one for its end, each with the id of the run's trace."""

import logging

from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.telemetry.tracing.ids import trace_id

log = logging.getLogger("cadre.run")


def log_course(entry: Entry) -> None:
    """Logs what the entry, which is stored, says of the run's beginning and end."""
    first, last = entry.events[0], entry.events[-1]
    if isinstance(first, RunAccepted):
        log.info("run %s of %s begins, trace %s", entry.run, first.task.agent, trace_id(entry.tree))
    if isinstance(last, RunFinished):
        why = f" ({last.error.type})" if last.error is not None else ""
        log.info("run %s ends: %s%s, trace %s", entry.run, last.state, why, trace_id(entry.tree))
