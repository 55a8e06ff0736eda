"""One line in the log for the beginning of a run and one for its end, each with the id of the run's trace.

Who has stored the entry logs it, and nobody else does who reads it: of many replicas and gateways one has.
"""

import logging

from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.telemetry.logs import fields_of_run
from cadre.telemetry.tracing.ids import trace_id

log = logging.getLogger("cadre.run")


def log_entry(entry: Entry) -> None:
    """Logs what the entry, which is stored, says of the run's beginning and end."""
    first, last = entry.events[0], entry.events[-1]
    if type(first) is RunAccepted:
        _log(entry, "begins")
    if type(last) is RunFinished:
        _log(entry, f"ends: {last.state}" + (f" ({last.error.type})" if last.error is not None else ""))


def _log(entry: Entry, what: str) -> None:
    fields = {"fields": fields_of_run(entry.tree, entry.run)}
    log.info("run %s of %s %s, trace %s", entry.run, entry.agent, what, trace_id(entry.tree), extra=fields)
