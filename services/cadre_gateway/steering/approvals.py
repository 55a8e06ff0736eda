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
from cadre.api.runs import (
    Approval,
    ApprovalDecision,
    ApprovalState,
    AskingRun,
    EarlierResult,
    PendingCall,
    RunSummary,
)
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
from cadre.errors import RunIndexUnavailable
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided, ApprovalRequested, PolicyDecided
from cadre.journal.run import ActionStep, CallPause, CallState, Phase, Run
from cadre.kinds.tool_calling.kind import with_values
from cadre.ports import Clock, Journal
from cadre.protocol.cards import presence_order
from cadre.protocol.messages import Decision
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import parent_of, tree_of
from cadre.spec.member_call import call_schema
from cadre.views.held_calls import DecidedCall, decision_of, headline_of
from cadre.views.run_summary import summary_of_task
from cadre.views.words import brief, call_text, error_text
from cadre_gateway import SENDER
from cadre_gateway.index.lists import AlikeCalls, CallFilter, ListedCall, listed_calls, summaries_of, verdicts_on
from cadre_gateway.index.run_filter import Cursor, TreeReach, cursor_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid, unknown_call
from cadre_gateway.requests.trace_link import note_sampling, trace_of
from cadre_gateway.steering.steer import RecordSender

_RESULTS = 3
"""Earlier results that a call is shown with."""

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
        waiting = [one.call for one in found if isinstance(one.call, PendingCall)]
        schemas, facts = await self._schemas(waiting), await self._facts(waiting, wanted.reach)
        return ApprovalPage([_shown(one, schemas[one.call], facts[one.call]) for one in waiting], more)

    async def decided(self, wanted: CallFilter, limit: int, before: str | None) -> ApprovalPage:
        """Decided calls as far as the list has them, the newest decision first. Raises as `page` does."""
        found, more = await self._listed(wanted, limit, before, decided=True)
        decided = [one.call for one in found if isinstance(one.call, DecidedCall)]
        facts = await self._facts([one.asked for one in decided], wanted.reach)
        shown = [
            _shown(one.asked, None, facts[one.asked.call], state="decided", decision=one.decision) for one in decided
        ]
        return ApprovalPage(shown, more)

    async def _listed(
        self, wanted: CallFilter, limit: int, before: str | None, *, decided: bool
    ) -> tuple[list[ListedCall], str | None]:
        place = _position(before) if before is not None else None
        found = await listed_calls(self.index, wanted, decided=decided, limit=limit + 1, before=place)
        return found[:limit], str(found[limit - 1].place) if len(found) > limit else None

    async def find(self, call: str, reach: TreeReach) -> Approval:
        """Any call that was ever held back, with its arguments whole. Raises a 404 problem, RetryableError."""
        held = await self.held_calls.read(call)
        entry, request, ruled = history_of(held)
        undecided: ApprovalState = "pending" if held.pending else "dropped"
        asked = PendingCall(
            call=call,
            run=held.run.id,
            tree=held.run.tree,
            agent=held.run.agent,
            name=request.name,
            kind=request.kind,
            headline=headline_of(request, entry),
            arguments=request.arguments,
            reason=request.reason,
            requested_at=entry.at,
            expires_at=request.expires_at,
            rule=request.rule,
            decided_by=request.by,
            origins=origins_of(held),
        )
        facts = _facts_of([summary_of_task(held.run.task)] if held.run.task else [], {})
        # While the index reads the journals, the call is shown with what its own journal says.
        with contextlib.suppress(RunIndexUnavailable):
            facts = (await self._facts([asked], reach))[call]
        return _shown(
            asked,
            schema_in(held.run, request.name, request.kind, held.pending),
            facts,
            values=with_values(held.run, request.arguments),
            results=_results_before(held),
            state="decided" if ruled else undecided,
            decision=ruled,
        )

    async def _facts(self, calls: Sequence[PendingCall], reach: TreeReach) -> dict[str, "_Facts"]:
        """Return by call what the index knows around it. Raises RunIndexUnavailable."""
        above = {one.call: _from_root(one.run) for one in calls}
        runs = await summaries_of(self.index, [run for chain in above.values() for run in chain])
        verdicts = await verdicts_on(self.index, [AlikeCalls(one.agent, one.name) for one in calls], reach)
        return {
            one.call: _facts_of(
                [runs[run] for run in above[one.call] if run in runs],
                verdicts.get(AlikeCalls(one.agent, one.name), {}),
            )
            for one in calls
        }

    async def _schemas(self, calls: Sequence[PendingCall]) -> dict[str, dict[str, Any] | None]:
        """Return by call the schema that a live tool or member offers now, else the one that the run was offered."""
        live = sorted(self.registry.reachable(), key=presence_order)
        schemas: dict[tuple[str, str], dict[str, Any] | None] = {
            ("tool", one.tool.name): one.tool.input_schema for one in live if one.tool is not None
        }
        agents = [one.agent for one in live if one.agent is not None]
        schemas |= {("member", agent.name): call_schema(agent.input_schema) for agent in agents}
        found = {}
        for call in calls:
            # Without arguments it may be a question of the call itself.
            key = (call.kind, call.name if call.arguments else call.call)
            if call.kind in ("tool", "member") and key not in schemas:
                schemas[key] = None
                with contextlib.suppress(Problem):  # the run may have been removed meanwhile
                    held = await self.held_calls.read(call.call)
                    schemas[key] = schema_in(held.run, call.name, call.kind, held.pending)
            found[call.call] = schemas.get(key)
        return found


class _Facts(NamedTuple):
    """The facts by which a person decides, besides the call."""

    chain: list[AskingRun]
    user: str | None
    session: str | None
    earlier: dict[str, int]


def _shown(call: PendingCall, schema: dict[str, Any] | None, facts: _Facts, **more: Any) -> Approval:
    task = next((one.task for one in facts.chain if one.run == call.run), "")
    return Approval(**msgspec.structs.asdict(call), task=task, schema=schema, **facts._asdict(), **more)


def _from_root(run: str) -> list[str]:
    """Return the ids of the runs above a run and its own, the root first."""
    chain = [run]
    while (above := parent_of(chain[0])) is not None:
        chain.insert(0, above)
    return chain


def _facts_of(chain: Sequence[RunSummary], earlier: dict[str, int]) -> _Facts:
    """Return the facts of a call whose run and the runs above it are these, the root first."""
    first = chain[0] if chain else RunSummary(id="", tree="")
    asking = [AskingRun(run=one.id, agent=one.agent, task=one.task) for one in chain]
    return _Facts(asking, first.user, first.session, earlier)


def _results_before(held: HeldCall) -> list[EarlierResult]:
    """Return the last calls of the run that ended, the newest first; [] for a call that does not wait."""
    if held.pending is None:
        return []
    steps = [one for one in [*held.run.steps, held.run.current] if isinstance(one, ActionStep)]
    ended = [call for step in steps for call in step.asked if not call.is_open]
    return [
        EarlierResult(
            call=one.id,
            asked=call_text(one.name, for_people(one.arguments), 300),
            result=brief(error_text(one.error) if one.error else one.observation, 300),
            failed=one.error is not None,
        )
        for one in reversed(ended[-_RESULTS:])
    ]


def _position(before: str) -> Cursor:
    try:
        return cursor_of(before)
    except KeyError:
        raise invalid(f"before: {before!r} is not the `next` of a page; start again without it") from None
