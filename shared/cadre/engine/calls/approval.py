"""Calls that wait for a person: what a decision makes of them or changes in them."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.calls.call_check import CallNotAllowed, as_judged, check_call
from cadre.engine.context.text_size import observation_of
from cadre.engine.policies.fold_facts import with_words
from cadre.engine.policies.judge import Wanted, judge
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.events import RequestedCall
from cadre.journal.run import CallPause, CallState, Run
from cadre.protocol.messages import CallEdit, Decision, Verdict
from cadre.protocol.policy import PLAN_TOOLS
from cadre.spec.answer_schema import misfits

CALLERS = "a function of whoever started the run: they answer it"
"""The reason for holding such a call."""


def held_call(run: Run, call: str) -> CallState | None:
    """The call, if it waits for a person."""
    found = run.call(call)
    return found if found is not None and found.hold is not None and found.is_open else None


def decided(run: Run, held: CallState, decision: Decision, arrival: Arrival) -> ev.ApprovalDecided:
    """Return what the decision makes true. Raises CallNotAllowed when its correction is a call that cannot be made."""
    name, arguments = None, None
    if held.pause is not None:
        arguments = decision.arguments if decision.verdict == "corrected" else None
        check_answer(held.pause, decision.verdict, arguments)
    elif decision.verdict == "corrected" and held.kind != "question":
        name = decision.tool if decision.tool not in (None, held.name) else None
        arguments = decision.arguments
        deciders = [decision.sender, *decision.roles]
        check_correction(run, held, decision.tool, decision.arguments, deciders, arrival)
    if decision.edits:
        check_edits(run, held, decision.edits)
    check_known(held, decision.know, arguments)
    return ev.ApprovalDecided(
        call=held.id,
        verdict=decision.verdict,
        feedback=decision.feedback,
        sender=decision.sender,
        name=name,
        arguments=arguments,
        edits=decision.edits,
        know=decision.know,
        trace=decision.trace,
    )


def check_answer(pause: CallPause, verdict: Verdict, content: dict[str, Any] | None) -> None:
    """Raise CallNotAllowed saying what the question of a call wants to be answered with."""
    wrong = misfits(pause.unfinished.schema, content or {})
    if verdict != "rejected" and wrong:
        wanted = ", ".join(pause.unfinished.schema.get("properties", {}))
        raise CallNotAllowed(f"correct the call with arguments that answer it ({wanted}): {'; '.join(wrong)}")


def check_known(held: CallState, know: Sequence[str], arguments: dict[str, Any] | None) -> None:
    """Raise CallNotAllowed for names in `know` that the call does not have; `arguments` are those of a correction."""
    given = held.arguments if arguments is None else arguments
    if unknown := [name for name in know if name not in given]:
        had = ", ".join(given) or "none"
        raise CallNotAllowed(f"know names {', '.join(unknown)}, and the arguments of the call are {had}")


def check_edits(run: Run, held: CallState, edits: Sequence[CallEdit]) -> None:
    """Raise CallNotAllowed saying why the calls that a question proposes cannot be changed like this."""
    calls = proposed_calls(held.arguments) if held.kind == "question" else []
    if not calls:
        raise CallNotAllowed(f"{held.name!r} proposes no calls that could be edited")
    edited_calls(run, calls, edits)


def may_decide(held: CallState, deciders: Sequence[str]) -> bool:
    """Return whether a person of this name, or with one of these roles, may decide on the call."""
    by = held.hold.by if held.hold is not None else []
    return not by or not set(by).isdisjoint(deciders)


def check_correction(
    run: Run,
    held: CallState,
    tool: str | None,
    arguments: dict[str, Any] | None,
    deciders: Sequence[str] = (),
    arrival: Arrival | None = None,
) -> None:
    """Raise CallNotAllowed saying why the corrected call cannot be made on the word of these. Without the arrival,
    calls of other runs do not count: the run itself decides."""
    name = tool or held.name
    if run.is_callers(held.name) or run.is_callers(name):
        raise CallNotAllowed(f"{name!r} is {CALLERS}, with the result as feedback of an approval")
    if name not in run.tools and name not in run.members:
        known = ", ".join([*run.tools, *run.members])
        raise CallNotAllowed(f"{name!r} is neither a tool nor a team member of {run.agent}: use one of {known}")
    made = held.arguments if arguments is None else arguments
    check_call(run, name, as_judged(run, name, made))
    if name == PLAN_TOOLS:
        return
    found = judge(with_words(run, arguments), Wanted(held.id, name, made), (), arrival, approved=True)
    facts = found.event.facts if found.event is not None else {}
    if found.verdict == "deny":
        raise CallNotAllowed(f"not allowed by {found.reason}", facts)
    if found.verdict == "hold" and set(found.by).isdisjoint(deciders):
        who = ", ".join(found.by) or "none of its rules' deciders"
        raise CallNotAllowed(f"the corrected call is for others to decide on ({who}): {found.reason}", facts)


def expired(held: CallState) -> ev.ApprovalDecided:
    """The event of a held call that was not decided on in time."""
    return ev.ApprovalDecided(call=held.id, verdict="expired")


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
        raise CallNotAllowed(f"the edit of call {edit.call} changes nothing: give arguments, a tool, or drop it")
    own = call.arguments if isinstance(call.arguments, dict) else {}
    if edit.tool not in (None, call.name):
        own = {}
    return _checked(run, edit.tool or call.name, {**own, **(edit.arguments or {})})


def _checked(run: Run, name: str, arguments: dict[str, Any]) -> RequestedCall:
    if name not in run.tools and name not in run.members:
        known = ", ".join([*run.tools, *run.members])
        raise CallNotAllowed(f"{name!r} is neither a tool nor a team member of {run.agent}: use one of {known}")
    check_call(run, name, as_judged(run, name, arguments))
    return RequestedCall(name, arguments)
