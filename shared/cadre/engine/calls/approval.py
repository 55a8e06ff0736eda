"""Calls that a person must agree to: which are held back, and what a decision makes of them."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.calls.call_check import CallNotAllowed, as_judged, check_call, input_schema
from cadre.engine.calls.call_edits import edited_calls, proposed_calls
from cadre.engine.kind import kind_of
from cadre.engine.parts import is_callers
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.journal.steps import CallPause, CallState
from cadre.protocol.messages import CallEdit, Decision, Verdict
from cadre.spec.answer_schema import misfits
from cadre.spec.policy import ALWAYS, NEVER, reason_to_ask

CALLERS = "a function of whoever started the run: they answer it"
"""Why such a call is held."""


def policy_of(run: Run, name: str) -> str:
    """The policy for calls of a tool or team member: the spec's word on it, the tool's own, the spec's `*`,
    then its permission mode."""
    spec = run.spec
    if spec is None:
        return NEVER
    tool = run.tools.get(name)
    own = tool.approval if tool is not None else ""
    default = NEVER if spec.permission == "open" or tool is None else ALWAYS
    return spec.approvals.get(name) or own or spec.approvals.get("*") or default


def hold(
    run: Run, arrival: Arrival, call: str, name: str, arguments: dict[str, Any]
) -> ev.ApprovalRequested | None:
    """The request for a person's word, or None when the call may be made. What a function of the caller returns is
    asked for likewise."""
    if is_callers(run, name):
        return ev.ApprovalRequested(
            call=call,
            name=name,
            kind="tool",
            arguments=kind_of(run).arguments(run, arguments),
            reason=CALLERS,
        )
    policy = policy_of(run, name)
    if policy == NEVER or run.spec is None:
        return None
    reason = reason_to_ask(policy, {**_defaults(run, name), **as_judged(run, name, arguments)})
    if reason is None:
        return None
    seconds = run.spec.approval_seconds
    return ev.ApprovalRequested(
        call=call,
        name=name,
        kind="tool" if name in run.tools else "member",
        arguments=arguments,
        reason=reason,
        expires_at=arrival.at + seconds if seconds is not None else None,
    )


def _defaults(run: Run, name: str) -> dict[str, Any]:
    """What the tool or member takes for arguments that the model leaves out: a policy may ask about them as well."""
    properties = (input_schema(run, name) or {}).get("properties", {})
    return {key: schema["default"] for key, schema in properties.items() if "default" in schema}


def held_call(run: Run, call: str) -> CallState | None:
    """The call, if it waits for a person."""
    return next((one for one in run.open_calls() if one.id == call and one.hold is not None), None)


def decided(run: Run, held: CallState, decision: Decision) -> ev.ApprovalDecided:
    """What the decision makes true. Raises CallNotAllowed when its correction is a call that cannot be made."""
    name, arguments = None, None
    if held.pause is not None:
        arguments = decision.arguments if decision.verdict == "corrected" else None
        check_answer(held.pause, decision.verdict, arguments)
    elif decision.verdict == "corrected" and held.kind != "question":
        name = decision.tool if decision.tool not in (None, held.name) else None
        arguments = decision.arguments
        check_correction(run, held, decision.tool, decision.arguments)
    if decision.edits:
        check_edits(run, held, decision.edits)
    return ev.ApprovalDecided(
        call=held.id,
        verdict=decision.verdict,
        feedback=decision.feedback,
        sender=decision.sender,
        name=name,
        arguments=arguments,
        edits=decision.edits,
        trace=decision.trace,
    )


def check_answer(pause: CallPause, verdict: Verdict, content: dict[str, Any] | None) -> None:
    """Raises CallNotAllowed saying what the question of a call wants to be answered with."""
    wrong = misfits(pause.unfinished.schema, content or {})
    if verdict != "rejected" and wrong:
        wanted = ", ".join(pause.unfinished.schema.get("properties", {}))
        raise CallNotAllowed(f"correct the call with arguments that answer it ({wanted}): {'; '.join(wrong)}")


def check_edits(run: Run, held: CallState, edits: Sequence[CallEdit]) -> None:
    """Raises CallNotAllowed saying why the calls that a question proposes cannot be changed like this."""
    calls = proposed_calls(held.arguments) if held.kind == "question" else []
    if not calls:
        raise CallNotAllowed(f"{held.name!r} proposes no calls that could be edited")
    edited_calls(run, calls, edits)


def check_correction(run: Run, held: CallState, tool: str | None, arguments: dict[str, Any] | None) -> None:
    """Raises CallNotAllowed saying why the corrected call cannot be made."""
    name = tool or held.name
    if is_callers(run, held.name) or is_callers(run, name):
        raise CallNotAllowed(f"{name!r} is {CALLERS}, with the result as feedback of an approval")
    if name not in run.tools and name not in run.members:
        known = ", ".join([*run.tools, *run.members])
        raise CallNotAllowed(
            f"{name!r} is neither a tool nor a team member of {run.agent}: use one of {known}"
        )
    check_call(run, name, as_judged(run, name, held.arguments if arguments is None else arguments))


def expired(held: CallState) -> ev.ApprovalDecided:
    """The event of a held call that nobody has decided on in time."""
    return ev.ApprovalDecided(call=held.id, verdict="expired")
