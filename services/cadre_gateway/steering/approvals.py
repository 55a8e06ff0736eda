"""List and show the calls that wait for a person, and decide on one; the run's journal says which decision was
first."""

import contextlib
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import Approval, ApprovalDecision, ApprovalState, PendingCall
from cadre.engine.calls.approval import (
    check_answer,
    check_correction,
    check_edits,
    check_known,
    held_call,
    may_decide,
    only_edits,
    proposed_calls,
)
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.fold import fold
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided, ApprovalRequested, PolicyDecided
from cadre.journal.run import Phase, Run
from cadre.journal.steps import CallPause, CallState
from cadre.kinds.tool_calling.kind import with_values
from cadre.ports import Clock, Journal
from cadre.protocol.cards import presence_order
from cadre.protocol.messages import Decision
from cadre.protocol.topology import parent_of, tree_of
from cadre.spec.member_call import call_schema
from cadre.views.held_calls import DecidedCall, decision_of
from cadre.views.run_summary import shortened
from cadre_gateway import SENDER
from cadre_gateway.index.lists import CallFilter, ListedCall, listed_calls
from cadre_gateway.index.run_filter import Cursor, cursor_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid, unknown_call
from cadre_gateway.requests.trace_link import note_sampling, trace_of
from cadre_gateway.steering.steer import RecordSender

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
        """Raise a 404 problem when there is no such run, RetryableError."""
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


def origins_of(held: HeldCall) -> dict[str, list[str]]:
    """Return where the values of a call first stood, by argument; {} where no policy has asked."""
    for entry in reversed(held.entries):
        for event in entry.events:
            if isinstance(event, PolicyDecided) and event.call == held.id:
                return event.origins
    return {}


def ruled_in(entry: Entry, call: str) -> ApprovalDecision | None:
    """Return the decision on the call in an entry."""
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


def _search(entries: list[Entry], call: str) -> tuple[tuple[Entry, ApprovalRequested] | None, ApprovalDecision | None]:
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

    async def decide(
        self, call: str, wanted: Ruling, traceparent: str | None, titles: Sequence[str] = ()
    ) -> ApprovalDecision:
        """Return the decision that counts: this one, or one before that says the same. Without `at` it is still on its
        way. `titles` are the names and roles of the caller (`Principal.titles`).

        Raises a 403, 404, 409, 410 or 422 problem, RetryableError.
        """
        async with answer_deadline():
            held = await self.held_calls.read(call)
            note_sampling(held.run.task)
            if held.pending is None:
                return await self._earlier(held, wanted)
            deciders = [wanted.by or SENDER, *titles]
            _check_entitled(held.pending, deciders)
            wanted = _with_edits(wanted, held.pending.arguments)
            own = {} if held.pending.pause is not None else held.pending.arguments
            arguments = wanted.arguments_of(held.pending.name, own)
            if held.pending.pause is not None:
                _check_answer(held.pending.pause, wanted, arguments)
            elif wanted.verdict == "corrected" and held.pending.kind == "question" and not wanted.edits:
                raise invalid("a question is answered with approve or reject, and with feedback if you like")
            elif wanted.verdict == "corrected":
                _check_correction(held.run, held.pending, wanted, arguments, deciders)
            _check_known(held.pending, wanted, arguments)
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
            know=wanted.know,
            sender=wanted.by or SENDER,
            roles=[*titles],
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
            raise Problem(410, "approval-expired", f"no one decided on call {call} in time: it expired at {at}")
        if not _says_the_same(ruled, request, wanted):
            raise Problem(409, "already-decided", f"call {call} was {ruled.verdict} by {ruled.by} at {at}")
        return ruled


def _with_edits(wanted: Ruling, about: dict[str, Any]) -> Ruling:
    """Return the decision with what it leaves out of the proposed calls as edits. Raises a 422 problem."""
    if wanted.only is None:
        return wanted
    try:
        edits = only_edits(len(proposed_calls(about)), wanted.only)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error
    return msgspec.structs.replace(wanted, verdict="corrected" if edits else wanted.verdict, edits=edits, only=None)


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


def _check_entitled(pending: CallState, deciders: Sequence[str]) -> None:
    """Raise a 403 problem for a person whom the rule that holds the call does not name."""
    if may_decide(pending, deciders) or pending.hold is None:
        return
    by = ", ".join(pending.hold.by)
    raise Problem(403, "not-entitled", f"the rule {pending.hold.rule} holds this call for {by} to decide on")


def _check_correction(
    run: Run, pending: CallState, wanted: Ruling, arguments: dict[str, Any] | None, deciders: Sequence[str]
) -> None:
    try:
        if wanted.edits:
            check_edits(run, pending, wanted.edits)
        else:
            check_correction(run, pending, wanted.tool, arguments, deciders)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error


def _check_known(pending: CallState, wanted: Ruling, arguments: dict[str, Any] | None) -> None:
    try:
        check_known(pending, wanted.know, arguments)
    except CallNotAllowed as error:
        raise invalid(str(error)) from error


class ApprovalPage(NamedTuple):
    """A part of the list."""

    calls: list[Approval]
    next: str | None
    """`before` of the next page."""


@dataclass(frozen=True)
class Approvals:
    """Shows calls that wait for a person."""

    index: RunIndex
    registry: NatsRegistry
    held_calls: HeldCalls

    async def page(self, wanted: CallFilter, limit: int, before: str | None) -> ApprovalPage:
        """Pending calls, newest first. Raises a 422 problem for a `before` that is not the `next` of a page,
        RetryableError."""
        found, more = await self._listed(wanted, limit, before, decided=False)
        return ApprovalPage(await self._with_schemas(found), more)

    async def decided(self, wanted: CallFilter, limit: int, before: str | None) -> ApprovalPage:
        """Decided calls as far as the list has them, the newest decision first. Raises as `page` does."""
        found, more = await self._listed(wanted, limit, before, decided=True)
        shown = [
            _shown(one.call.asked, one.task, None, state="decided", decision=one.call.decision)
            for one in found
            if isinstance(one.call, DecidedCall)
        ]
        return ApprovalPage(shown, more)

    async def _listed(
        self, wanted: CallFilter, limit: int, before: str | None, *, decided: bool
    ) -> tuple[list[ListedCall], str | None]:
        place = _position(before) if before is not None else None
        found = await listed_calls(self.index, wanted, decided=decided, limit=limit + 1, before=place)
        return found[:limit], str(found[limit - 1].place) if len(found) > limit else None

    async def find(self, call: str) -> Approval:
        """Any call that was ever held back, with its arguments whole. Raises a 404 problem, RetryableError."""
        held = await self.held_calls.read(call)
        entry, request, ruled = history_of(held)
        undecided: ApprovalState = "pending" if held.pending else "dropped"
        return Approval(
            call=call,
            run=held.run.id,
            tree=held.run.tree,
            agent=held.run.agent,
            name=request.name,
            kind=request.kind,
            arguments=request.arguments,
            values=with_values(held.run, request.arguments),
            reason=request.reason,
            requested_at=entry.at,
            expires_at=request.expires_at,
            rule=request.rule,
            decided_by=request.by,
            origins=origins_of(held),
            task=shortened(held.run.task.task) if held.run.task else "",
            schema=schema_in(held.run, request.name, request.kind, held.pending),
            state="decided" if ruled else undecided,
            decision=ruled,
        )

    async def _with_schemas(self, calls: list[ListedCall]) -> list[Approval]:
        """Add the schema that a live tool or member offers now, else the one that the run was offered."""
        live = sorted(self.registry.reachable(), key=presence_order)
        schemas: dict[tuple[str, str], dict[str, Any] | None] = {
            ("tool", one.tool.name): one.tool.input_schema for one in live if one.tool is not None
        }
        agents = [one.agent for one in live if one.agent is not None]
        schemas |= {("member", agent.name): call_schema(agent.input_schema) for agent in agents}
        shown = []
        for one in calls:
            if isinstance(call := one.call, DecidedCall):
                continue
            # Without arguments it may be a question of the call itself.
            key = (call.kind, call.name if call.arguments else call.call)
            if call.kind in ("tool", "member") and key not in schemas:
                schemas[key] = None
                with contextlib.suppress(Problem):  # the run may have been removed meanwhile
                    held = await self.held_calls.read(call.call)
                    schemas[key] = schema_in(held.run, call.name, call.kind, held.pending)
            shown.append(_shown(call, one.task, schemas.get(key)))
        return shown


def _shown(call: PendingCall, task: str, schema: dict[str, Any] | None, **more: Any) -> Approval:
    return Approval(**msgspec.structs.asdict(call), task=task, schema=schema, **more)


def _position(before: str) -> Cursor:
    try:
        return cursor_of(before)
    except KeyError:
        raise invalid(f"before: {before!r} is not the `next` of a page; start again without it") from None
