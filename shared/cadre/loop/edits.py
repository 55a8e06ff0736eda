"""Edits of what a run plans to do: made when they are based on its present version, else refused with the reason."""

from cadre.engine.carry_out import carry_out
from cadre.engine.edits import EditNotAllowed
from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.loop.guards import run_after
from cadre.protocol.codes import EditRefusal
from cadre.protocol.messages import Edit


def on_edit(run: Run, edit: Edit, arrival: Arrival) -> list[ev.AnyEvent]:
    """The edit with what follows from it, or why it is not made."""
    kind = kind_of(run)
    present = kind.editable(run)
    if present is None:
        return [
            _refused(edit, None, "not-editable", f"there is nothing to edit in this run of kind {kind.name}")
        ]
    if edit.base != present.version:
        reason = (
            f"the {present.name} is at version {present.version} by now, and the edit is based on {edit.base}"
        )
        return [_refused(edit, present.version, "stale-version", reason)]
    try:
        kind.check_edit(run, edit)
    except EditNotAllowed as error:
        return [_refused(edit, present.version, error.code, str(error))]
    applied = ev.EditApplied(base=edit.base, operations=edit.operations, sender=edit.sender)
    after = run_after(run, [applied], arrival.at)
    return [applied, *carry_out(after, arrival, kind.edited(after, edit, arrival))]


def _refused(edit: Edit, version: int | None, code: EditRefusal, reason: str) -> ev.EditRefused:
    return ev.EditRefused(base=edit.base, version=version, code=code, reason=reason, sender=edit.sender)
