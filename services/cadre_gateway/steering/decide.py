"""Decide on a pending call for a person, found in its run's journal; the journal says which decision was first."""

import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import ApprovalDecision
from cadre.engine.calls.approval import check_answer, check_correction, check_edits, held_call
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.call_edits import only_edits, proposed_calls
from cadre.engine.fold import fold
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided, ApprovalRequested
from cadre.journal.run import Phase, Run
from cadre.journal.steps import CallPause, CallState
from cadre.ports import Clock, Journal
from cadre.protocol.messages import Decision
from cadre.protocol.topology import parent_of, tree_of
from cadre.spec.member_call import call_schema
from cadre.views.held_calls import decision_of
from cadre_gateway import SENDER
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid, unknown_call
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.steering.record_sender import RecordSender

_CALL_ID = re.compile(r"[A-Za-z0-9-]{1,64}(?:_\d{1,9}_\d{1,9}){1,64}")


class HeldCall(NamedTuple):
    """A call as the leader of its run's journal has it."""

    id: str
    run: Run
    entries: list[Entry]
    """All entries of the run."""
    pending: CallState | None
    """The call itself while it waits."""


class CallHistory(NamedTuple):
    """A call that was held back, as a journal records it."""

    entry: Entry
    """The entry of the request."""
    request: ApprovalRequested
    ruled: ApprovalDecision | None


@dataclass(frozen=True)
class HeldCalls:
    """Reads calls that were held back."""

    journal: Journal

    async def read(self, call: str) -> HeldCall:
        """Raises a 404 problem when there is no such run, RetryableError."""
        run = parent_of(call)
        if run is None or not _CALL_ID.fullmatch(call):
            raise unknown_call(call)
        tree = tree_of(call)
        entries = [stored.entry for stored in await self.journal.read(tree, run)]
        if not entries:
            raise unknown_call(call)
        state = fold(entries, run, tree)
        pending = held_call(state, call) if state.phase is not Phase.DONE else None
        return HeldCall(call, state, entries, pending)


def history_of(held: HeldCall) -> CallHistory:
    """Return the request for a person's decision, and the decision if there is one. Raises a 404 problem for a
    call that was never held back."""
    request, ruled = _search(held.entries, held.id)
    if request is None:
        raise unknown_call(held.id)
    return CallHistory(*request, ruled)


def ruled_in(entry: Entry, call: str) -> ApprovalDecision | None:
    """The decision on the call that an entry tells of."""
    for event in entry.events:
        if isinstance(event, ApprovalDecided) and event.call == call:
            return decision_of(event, entry.at)
    return None


def schema_in(run: Run, name: str, kind: str, pending: CallState | None = None) -> dict[str, Any] | None:
    """JSON Schema of the arguments, as the run was offered the tool or member; of a call's question, of the answer."""
    if pending is not None and pending.pause is not None:
        return pending.pause.unfinished.schema
    if kind == "member":
        return call_schema(run.members[name].input_schema if name in run.members else None)
    if kind == "question":
        return None
    return run.tools[name].input_schema if name in run.tools else None


def _search(
    entries: list[Entry], call: str
) -> tuple[tuple[Entry, ApprovalRequested] | None, ApprovalDecision | None]:
    request, ruled = None, None
    for entry in entries:
        for event in entry.events:
            if isinstance(event, ApprovalRequested) and event.call == call:
                request = (entry, event)
        ruled = ruled or ruled_in(entry, call)
    return request, ruled


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
        """Return what was decided before, if it says the same. Raise a problem that says what became of the call."""
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
