"""A person's decision on a call that waits. The journal says which decision was first."""

import secrets
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from cadre.api.approvals import ApprovalDecision
from cadre.engine.calls.approval import check_answer, check_correction, check_edits
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.call_edits import only_edits, proposed_calls
from cadre.journal.events import ApprovalRequested
from cadre.journal.run import Phase, Run
from cadre.journal.steps import CallPause, CallState
from cadre.ports import Clock
from cadre.protocol.messages import Decision
from cadre_gateway import SENDER
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.steering.held_calls import HeldCall, HeldCalls, history_of, ruled_in
from cadre_gateway.steering.record_sender import RecordSender


@dataclass(frozen=True)
class ApprovalDecisions:
    """Takes decisions to the agents that wait for them."""

    held_calls: HeldCalls
    sender: RecordSender
    clock: Clock

    async def decide(self, call: str, wanted: Ruling, traceparent: str | None) -> ApprovalDecision:
        """The decision that counts: this one, or one before that says the same. Without `at` it is still on its way.

        Raises a 404, 409, 410 or 422 problem, RetryableError.
        """
        async with answer_deadline():
            held = await self.held_calls.read(call)
            if held.pending is None:
                return await self._earlier(held, wanted)
            wanted = _with_edits(wanted, held.pending.arguments)
            own = {} if held.pending.pause is not None else held.pending.arguments
            arguments = wanted.arguments_of(held.pending.name, own)
            if held.pending.pause is not None:
                _check_answer(held.pending.pause, wanted, arguments)
            elif wanted.verdict == "corrected" and held.pending.kind == "question" and not wanted.edits:
                raise invalid("a question is answered with approve or reject, and with feedback if you like")
            elif wanted.verdict == "corrected":
                _check_correction(held.run, held.pending, wanted, arguments)
        decision = Decision(
            id=f"{call}:decision:{secrets.token_hex(8)}",
            tree=held.run.tree,
            run=held.run.id,
            at=self.clock.now(),
            call=call,
            verdict=wanted.verdict,
            feedback=wanted.feedback,
            tool=wanted.tool,
            arguments=arguments,
            edits=wanted.edits,
            sender=wanted.by or SENDER,
            trace=trace_of(traceparent),
        )
        entry = await self.sender.send(decision, held.run.agent)
        if entry is not None and (ruled := ruled_in(entry, call)) is not None:
            return ruled
        async with answer_deadline():
            held = await self.held_calls.read(call)
            if held.pending is None:
                return await self._earlier(held, wanted)
        if decision.id in held.run.seen:
            # What the tools and the team are has changed since it was checked.
            raise invalid("the correction cannot be made (any more); the call goes on waiting")
        return ApprovalDecision(
            call=call,
            verdict=decision.verdict,
            by=decision.sender,
            feedback=decision.feedback,
            tool=decision.tool,
            arguments=decision.arguments,
            edits=decision.edits,
        )

    async def _earlier(self, held: HeldCall, wanted: Ruling) -> ApprovalDecision:
        """What was decided before, if it says the same. Raises a problem that says what became of the call."""
        _, request, ruled = history_of(held)
        call, run = held.id, held.run
        if ruled is None and run.phase is not Phase.DONE:
            raise Problem(410, "approval-dropped", f"call {call} was given up for a message to run {run.id}")
        if ruled is None:
            ended = run.result.state if run.result else "ended"
            raise Problem(410, "run-ended", f"run {run.id} is over ({ended}): call {call} was never made")
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ruled.at))
        if ruled.verdict == "expired":
            raise Problem(
                410, "approval-expired", f"nobody decided on call {call} in time: it expired at {at}"
            )
        if not _says_the_same(ruled, request, wanted):
            raise Problem(409, "already-decided", f"call {call} was {ruled.verdict} by {ruled.by} at {at}")
        return ruled


def _with_edits(wanted: Ruling, about: dict[str, Any]) -> Ruling:
    """The decision with what it leaves out of the proposed calls as edits. Raises a 422 problem."""
    if wanted.only is None:
        return wanted
    try:
        edits = only_edits(len(proposed_calls(about)), wanted.only)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error
    return msgspec.structs.replace(
        wanted, verdict="corrected" if edits else wanted.verdict, edits=edits, only=None
    )


def _says_the_same(ruled: ApprovalDecision, request: ApprovalRequested, wanted: Ruling) -> bool:
    wanted = _with_edits(wanted, request.arguments)
    if ruled.verdict != wanted.verdict or ruled.edits != wanted.edits:
        return False
    tool, own, arguments = (
        request.name,
        request.arguments,
        wanted.arguments_of(request.name, request.arguments),
    )
    return (ruled.tool or tool, own if ruled.arguments is None else ruled.arguments) == (
        wanted.tool or tool,
        own if arguments is None else arguments,
    )


def _check_answer(pause: CallPause, wanted: Ruling, content: dict[str, Any] | None) -> None:
    try:
        check_answer(pause, wanted.verdict, content if wanted.verdict == "corrected" else None)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error


def _check_correction(run: Run, pending: CallState, wanted: Ruling, arguments: dict[str, Any] | None) -> None:
    try:
        if wanted.edits:
            check_edits(run, pending, wanted.edits)
        else:
            check_correction(run, pending, wanted.tool, arguments)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error
