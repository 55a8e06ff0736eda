"""Calls that a model, or its code, asks for: each made, held back for a person, or refused on its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.budget import share, too_little_for
from cadre.engine.calls.approval import CALLERS
from cadre.engine.calls.call_check import (
    CallNotAllowed,
    as_judged,
    as_written,
    check_call,
    check_delegation,
)
from cadre.engine.calls.fold_calls import Opening
from cadre.engine.calls.repeats import refusal_of, refused_alike
from cadre.engine.kind import kind_of
from cadre.engine.policies.judge import Judgement, Wanted, given_to, judge
from cadre.engine.policies.passing import passed_to_member, passed_to_part
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.policy import PLAN_TOOLS
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import call_id
from cadre.spec.member_call import ADDITIONAL, TASK, inputs_of
from cadre.spec.policy import filled_sentence

ALONE = (
    "`final_answer` must be the only call of a step: the other calls of this step are being made."
    " Read their results first, then answer."
)

_CALLERS_SECONDS = 86_400.0
"""The time that a function of the caller waits for its result, unless the agent bounds its approvals."""

WIDER = "it plans further tools after something was read"
"""The reason for holding a plan."""


class RunPart(NamedTuple):
    """A part of the run's own work, for a run of the same agent; `Kind.part` says what holds in it."""

    task: str
    inputs: dict[str, Any]


class Opened(NamedTuple):
    """The outcome of opening a call."""

    event: Opening
    decided: ev.PolicyDecided | None = None
    """The decision of the run's policies; None where they have no rule about it."""


def opened_calls(
    run: Run,
    arrival: Arrival,
    requests: Sequence[ev.RequestedCall | RunPart],
    *,
    approved: bool,
    may_repeat: bool,
) -> list[Opened]:
    """Return the outcome of opening each call. All share the budget that is left, so none is true yet as another one is
    made; rules see the calls before each."""
    step, first = run.step, 0
    if run.current is not None:
        step, first = run.current.number, len(run.current.calls)
    opened: list[Opened] = []
    for index, call in enumerate(requests, first):
        id = call_id(run.id, step, index)
        if isinstance(call, RunPart):
            opened.append(Opened(_open_part(run, call, id)))
        else:
            before = [one.event for one in opened]
            opened.append(_open(run, arrival, call, id, before, approved=approved, may_repeat=may_repeat))
    if run.budget is None:
        return opened
    shared = zip(requests, shared_out(run, [one.event for one in opened]), opened, strict=True)
    return [Opened(_afforded(run, call, event), one.decided) for call, event, one in shared]


def _afforded(run: Run, call: ev.RequestedCall | RunPart, event: Opening) -> Opening:
    """The event, or a refusal in place of a member whose share of the budget would not pay its first request."""
    if not isinstance(event, ev.DelegateStarted) or isinstance(call, RunPart):
        return event
    error = too_little_for(run.members[event.member], event)
    if error is None:
        return event
    arguments = read_arguments(call)
    return ev.CallRefused(call=event.call, name=call.name, arguments=arguments, error=error)


def _open(  # noqa: PLR0913 - what a ruling takes
    run: Run,
    arrival: Arrival,
    call: ev.RequestedCall,
    call_id: str,
    before: Sequence[ev.AnyEvent],
    *,
    approved: bool,
    may_repeat: bool,
) -> Opened:
    arguments: dict[str, Any] = {}
    error = call.error
    try:
        arguments = as_written(run, call.name, read_arguments(call))
        if error is None:
            check_call(run, call.name, as_judged(run, call.name, arguments))
    except (ReadingError, CallNotAllowed) as wrong:
        error = error or wrong.info
    if error is not None:
        refusal = refused_alike(run, call.name, arguments, error) or error
        return Opened(ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=refusal))
    if call.name not in run.tools and call.name not in run.members:
        alone = ErrorInfo("invalid-call", ALONE)
        return Opened(ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=alone))
    counts = kind_of(run).guided and not may_repeat
    repeated = refusal_of(run, call.name, arguments) if counts else None
    if repeated is not None:
        return Opened(ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=repeated))
    return _ruled(run, arrival, Wanted(call_id, call.name, arguments), before, approved=approved)


def _ruled(run: Run, arrival: Arrival, call: Wanted, before: Sequence[ev.AnyEvent], *, approved: bool) -> Opened:
    """Return the call as the rules have it: made, held for a person, or denied. A function of the caller is held in any
    case.

    `before` are events of calls that are made before it in the same step; `approved`: a person has agreed to it.
    """
    if call.name == PLAN_TOOLS:
        return Opened(_hold_plan(run, arrival, call) or made(run, *call))
    found = judge(run, call, before, arrival, approved=approved)
    if found.verdict == "deny":
        error = ErrorInfo("policy", f"Not allowed by {found.reason}")
        error = refused_alike(run, call.name, call.arguments, error) or error
        refused = ev.CallRefused(call=call.id, name=call.name, arguments=call.arguments, error=error)
        return Opened(refused, found.event)
    if run.is_callers(call.name) and not approved:
        asked = ev.ApprovalRequested(
            call=call.id,
            name=call.name,
            kind="function",
            arguments=kind_of(run).arguments(run, call.arguments),
            reason=CALLERS if found.verdict == "allow" else f"{found.reason}; {CALLERS}",
            expires_at=arrival.at + _callers_seconds(run),
            rule=found.rule,
            by=list(found.by),
        )
        return Opened(asked, found.event)
    if found.verdict == "allow" or run.spec is None:
        return Opened(made(run, *call), found.event)
    return Opened(_asked(run, arrival, call, found), found.event)


def _callers_seconds(run: Run) -> float:
    own = run.spec.approval_seconds if run.spec is not None else None
    return own if own is not None else _CALLERS_SECONDS


def _asked(run: Run, arrival: Arrival, call: Wanted, found: Judgement) -> ev.ApprovalRequested:
    assert run.spec is not None
    seconds = found.within if found.within is not None else run.spec.approval_seconds
    return ev.ApprovalRequested(
        call=call.id,
        name=call.name,
        kind="tool" if call.name in run.tools else "member",
        arguments=call.arguments,
        reason=found.reason,
        expires_at=arrival.at + seconds if seconds is not None else None,
        rule=found.rule,
        by=list(found.by),
        text=_sentence(run, call),
    )


def _sentence(run: Run, call: Wanted) -> str:
    sentence = run.tools[call.name].approval_text if call.name in run.tools else ""
    return filled_sentence(sentence, for_people(given_to(run, call))) if sentence else ""


def _hold_plan(run: Run, arrival: Arrival, call: Wanted) -> ev.ApprovalRequested | None:
    """A plan that is made, or made wider, after something was read is for a person to decide."""
    if run.facts is None or run.facts.may_plan or _is_planned(run, call):
        return None
    return _asked(run, arrival, call, Judgement("hold", WIDER, PLAN_TOOLS))


def _is_planned(run: Run, call: Wanted) -> bool:
    said = kind_of(run).arguments(run, call.arguments).get("tools")
    planned = run.facts.plan if run.facts is not None else None
    return isinstance(said, list) and planned is not None and all(one in planned for one in said)


def _open_part(run: Run, part: RunPart, call: str) -> Opening:
    try:
        check_delegation(run, run.agent, is_part=True)
    except CallNotAllowed as error:
        return ev.CallRefused(call=call, name=run.agent, error=error.info)
    passes = passed_to_part(run, part.task, part.inputs)
    return ev.DelegateStarted(call=call, member=run.agent, task=part.task, inputs=part.inputs, passes=passes)


def made(run: Run, call: str, name: str, arguments: dict[str, Any]) -> ev.ToolCalled | ev.DelegateStarted:
    """The event of a call that was checked; a member's share is still to be set."""
    if name in run.tools:
        return ev.ToolCalled(call=call, tool=name, arguments=arguments)
    # A model may name a variable in place of the whole object.
    further = kind_of(run).arguments(run, {ADDITIONAL: arguments.get(ADDITIONAL)})
    inputs = inputs_of({**arguments, **further})
    told = kind_of(run).arguments(run, {TASK: arguments[TASK]})[TASK]
    passes = passed_to_member(run, name, told, inputs)
    return ev.DelegateStarted(call=call, member=name, task=arguments[TASK], inputs=inputs, passes=passes)


def shared_out(run: Run, opened: Sequence[Opening]) -> Sequence[Opening]:
    """The calls with each member's share of the budget; one that is held back gets what is left later."""
    if run.budget is None:
        return opened
    members = sum(
        isinstance(event, ev.DelegateStarted) or (isinstance(event, ev.ApprovalRequested) and event.kind == "member")
        for event in opened
    )
    return [
        msgspec.structs.replace(event, budget=share(run, members)) if isinstance(event, ev.DelegateStarted) else event
        for event in opened
    ]
