"""What a person changes about calls that a held question proposes: drops, changes and additions, before any is made."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.calls.call_check import CallNotAllowed, as_judged, check_call
from cadre.engine.context.observation import observation_of
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.protocol.messages import CallEdit


def proposed_calls(about: dict[str, Any]) -> list[RequestedCall]:
    """The calls that a question is about; [] for one about something else."""
    return [RequestedCall(one["name"], one["arguments"]) for one in about.get("calls") or []]


def edited_calls(run: Run, calls: Sequence[RequestedCall], edits: Sequence[CallEdit]) -> list[RequestedCall]:
    """The calls as they are to be made. Raises CallNotAllowed for an edit of no call, and for a call that cannot be."""
    changed: dict[int, RequestedCall | None] = dict(enumerate(calls, 1))
    added: list[RequestedCall] = []
    for edit in edits:
        if edit.call is None:
            if edit.tool is None or edit.drop:
                raise CallNotAllowed("an edit without the number of a call adds one: name its tool")
            added.append(_checked(run, edit.tool, edit.arguments or {}))
            continue
        before = changed.get(edit.call)
        if before is None:
            raise CallNotAllowed(f"there is no call {edit.call} to edit: there are {len(calls)}, from 1")
        changed[edit.call] = None if edit.drop else _changed(run, before, edit)
    return [*(call for call in changed.values() if call is not None), *added]


def only_edits(count: int, only: Sequence[int]) -> list[CallEdit]:
    """The edits that leave these of `count` calls, by their numbers from 1. Raises CallNotAllowed for other numbers."""
    for number in only:
        if not 1 <= number <= count:
            raise CallNotAllowed(f"there is no call {number}: there are {count}, from 1")
    return [CallEdit(call=number, drop=True) for number in range(1, count + 1) if number not in only]


def edits_as_text(calls: Sequence[RequestedCall], edits: Sequence[CallEdit]) -> str:
    """The edits as the model that proposed the calls reads them."""
    return "; ".join(_as_text(calls, edit) for edit in edits)


def _as_text(calls: Sequence[RequestedCall], edit: CallEdit) -> str:
    arguments = observation_of(edit.arguments or {})
    if edit.call is None:
        return f"added a call of {edit.tool} with {arguments}"
    name = calls[edit.call - 1].name
    if edit.drop:
        return f"dropped call {edit.call} ({name})"
    if edit.tool is not None and edit.tool != name:
        return f"replaced call {edit.call} ({name}) by {edit.tool} with {arguments}"
    return f"changed call {edit.call} ({name}): {arguments}"


def _changed(run: Run, call: RequestedCall, edit: CallEdit) -> RequestedCall:
    if edit.tool is None and edit.arguments is None:
        raise CallNotAllowed(
            f"the edit of call {edit.call} changes nothing: give arguments, a tool, or drop it"
        )
    own = call.arguments if isinstance(call.arguments, dict) else {}
    if edit.tool not in (None, call.name):
        own = {}
    return _checked(run, edit.tool or call.name, {**own, **(edit.arguments or {})})


def _checked(run: Run, name: str, arguments: dict[str, Any]) -> RequestedCall:
    if name not in run.tools and name not in run.members:
        known = ", ".join([*run.tools, *run.members])
        raise CallNotAllowed(
            f"{name!r} is neither a tool nor a team member of {run.agent}: use one of {known}"
        )
    check_call(run, name, as_judged(run, name, arguments))
    return RequestedCall(name, arguments)
