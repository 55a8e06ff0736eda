"""What follows from a person's word on a held call, or from its absence."""

import msgspec

from cadre.engine.budget import too_little_for
from cadre.engine.calls.approval import decided, expired, may_decide
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.call_events import made, shared_out
from cadre.engine.calls.results import settled
from cadre.engine.draft import Draft
from cadre.engine.kind import kind_of
from cadre.engine.parts import is_callers
from cadre.engine.policies.judge import Wanted, judge
from cadre.journal import events as ev
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import Decision, ErrorInfo
from cadre.protocol.policy import PLAN_TOOLS


def on_decision(draft: Draft, held: CallState, decision: Decision) -> None:
    """Decide what becomes of a held call: made, made otherwise, turned down, or refused where a member's share of the
    budget would not pay its first request; of a function of the caller, its result. A correction that cannot be made
    changes nothing: the call goes on waiting."""
    run = draft.run
    if not may_decide(held, [decision.sender, *decision.roles]):
        by = ", ".join(held.hold.by) if held.hold is not None else ""
        draft.emit(ev.RecordIgnored(kind="Decision", code="not-entitled", detail=f"{by} decide on this call"))
        return
    try:
        event = decided(run, held, decision)
    except CallNotAllowed as error:
        draft.emit(ev.RecordIgnored(kind="Decision", code="invalid-correction", detail=str(error)))
        return
    name = event.name or held.name
    arguments = held.arguments if event.arguments is None else event.arguments
    draft.emit(event)
    if held.pause is not None:
        draft.emit(made(run, held.id, held.name, held.arguments))
    elif decision.verdict == "rejected" or held.kind == "question":
        settled(draft, held.id)
    elif name == PLAN_TOOLS:
        draft.plan_by_call(ev.ToolCalled(call=held.id, tool=name, arguments=arguments))
        settled(draft, held.id)
    elif is_callers(run, held.name):
        draft.emit(
            ev.ToolAnswered(call=held.id, tool=held.name, output=decision.feedback, executor=decision.sender)
        )
        settled(draft, held.id)
    else:
        if event.arguments is not None or event.name is not None:
            again = judge(run, Wanted(held.id, name, arguments), approved=True)
            if again.event is not None:
                draft.emit(msgspec.structs.replace(again.event, verdict="allow"))
        (begun,) = shared_out(run, [made(run, held.id, name, arguments)])
        unpaid = _unpaid(run, name, begun)
        if unpaid is None:
            draft.emit(begun)
            return
        draft.emit(ev.CallRefused(call=held.id, name=name, arguments=arguments, error=unpaid))
        settled(draft, held.id)


def _unpaid(run: Run, name: str, begun: ev.AnyEvent) -> ErrorInfo | None:
    """Why the member is not begun, for a model to read; where no model reads it, it is begun with what there is."""
    if not isinstance(begun, ev.DelegateStarted) or not kind_of(run).reads_calls(run):
        return None
    return too_little_for(run.members[name], begun)


def on_expiry(draft: Draft, held: CallState) -> None:
    """Decide what follows when a held call expires."""
    draft.emit(expired(held))
    settled(draft, held.id)
