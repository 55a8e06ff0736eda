"""Calls that wait for a person: listed, looked at, decided. The journal says which decision was first."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from typing import Any, Literal, NamedTuple

import msgspec

from cadre.engine.calls.approval import check_correction, held_call
from cadre.engine.calls.call_check import MEMBER_SCHEMA, CallError
from cadre.journal.events import ApprovalDecided, ApprovalRequested, Entry
from cadre.journal.run import CallState, Phase, Run
from cadre.kinds.tool_calling.arguments import with_values
from cadre.loop.fold import fold
from cadre.ports import Stored
from cadre.protocol.messages import Decision, Verdict
from cadre.protocol.topology import parent_of, tree_of
from cadre_gateway.desk import ANSWER_WITHIN, Desk
from cadre_gateway.index.pending_approvals import PendingCall
from cadre_gateway.index.run_list import short
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.runs.directory import live_agents
from cadre_gateway.runs.submit import SENDER, trace_of

TOLD_WITHIN = 5.0
"""Seconds that a decision's answer waits for the agent to take it up."""

_CALL = re.compile(r"[A-Za-z0-9-]{1,64}(?:_\d{1,9}_\d{1,9}){1,64}")


class Ruled(msgspec.Struct, kw_only=True):
    """The decision on a call. `at` is null as long as no agent has taken it up."""

    call: str
    verdict: Verdict | Literal["expired"]
    by: str
    at: float | None = None
    feedback: str = ""
    tool: str | None = None
    """What is called instead, when that was corrected."""
    arguments: dict[str, Any] | None = None
    """What it is called with, when that was corrected."""


class Approval(PendingCall, frozen=True, kw_only=True):
    """A call that waits, or has waited, for a person."""

    task: str
    """Of its run, cut."""
    schema: dict[str, Any] | None
    """JSON Schema of the arguments."""
    values: dict[str, Any] | None = None
    """The arguments as they would be sent, the values of variables in the place of their names; not in the list."""
    state: Literal["pending", "decided", "dropped"] = "pending"
    """`dropped`: its run ended first."""
    decision: Ruled | None = None


class Page(NamedTuple):
    calls: list[Approval]
    next: str | None


class _Look(NamedTuple):
    """A call as the leader of its journal has it."""

    run: Run
    entries: list[Entry]
    """Since the last snapshot."""
    held: CallState | None


async def page(
    desk: Desk, *, agent: str | None, run: str | None, tree: str | None, limit: int, before: str | None
) -> Page:
    """Pending calls, newest first; `run` stands for itself and all runs below it. Raises a 422 problem."""
    found: list[PendingCall] = []
    more = False
    for call in desk.index.pending(_place(before) if before is not None else None):
        if (
            (agent is None or call.agent == agent)
            and (tree is None or call.tree == tree)
            and (run is None or call.run == run or call.run.startswith(f"{run}_"))
        ):
            more = len(found) == limit
            if more:
                break
            found.append(call)
    told = await _with_schemas(desk, found)
    return Page(told, f"{found[-1].requested_at!r},{found[-1].call}" if more else None)


async def one(desk: Desk, call: str) -> Approval:
    """Any call that was ever held back, with its arguments whole. Raises a 404 problem, RetryableError."""
    look = await _look(desk, call)
    request, ruled = await _history(desk, look, call)
    if request is None:
        raise _unknown(call)
    entry, event = request
    state: Literal["pending", "decided", "dropped"] = "pending" if look.held else "dropped"
    return Approval(
        call=call,
        run=look.run.id,
        tree=look.run.tree,
        agent=look.run.agent,
        name=event.name,
        kind=event.kind,
        arguments=event.arguments,
        values=with_values(look.run, event.arguments),
        reason=event.reason,
        requested_at=entry.at,
        expires=event.expires,
        task=short(look.run.task.task) if look.run.task else "",
        schema=_schema_in(look.run, event.name, event.kind),
        state="decided" if ruled else state,
        decision=ruled,
    )


async def decide(desk: Desk, call: str, wanted: Ruling, traceparent: str | None) -> Ruled:
    """The decision that counts, which is this one or says the same; without `at` it is still on its way.

    Raises a 404, 409, 410 or 422 problem, RetryableError.
    """
    async with asyncio.timeout(ANSWER_WITHIN):
        look = await _look(desk, call)
        if look.held is None:
            return await _settled(desk, look, call, wanted)
        if wanted.verdict == "corrected":
            _check(look.run, look.held, wanted)
    by = wanted.by or SENDER
    decision = Decision(
        id=f"{call}:decision:{secrets.token_hex(8)}",
        tree=look.run.tree,
        run=look.run.id,
        at=time.time(),
        call=call,
        verdict=wanted.verdict,
        feedback=wanted.feedback,
        tool=wanted.tool,
        arguments=wanted.arguments,
        sender=by,
        trace=trace_of(traceparent),
    )
    entry = await _tell(desk, decision, look.run.agent)
    if entry is not None and (ruled := _ruled(entry, call)) is not None:
        return ruled
    async with asyncio.timeout(ANSWER_WITHIN):
        look = await _look(desk, call)
        if look.held is None:
            return await _settled(desk, look, call, wanted)
    if decision.id in look.run.seen:
        # What the tools and the team are has changed since it was checked.
        raise invalid("the correction cannot be made (any more); the call goes on waiting")
    return Ruled(
        call=call,
        verdict=wanted.verdict,
        by=by,
        feedback=wanted.feedback,
        tool=wanted.tool,
        arguments=wanted.arguments,
    )


async def _tell(desk: Desk, decision: Decision, agent: str) -> Entry | None:
    """Publishes the decision; the entry that accounts for it, None when there is none in time."""
    feed: Feed[Stored] = Feed()
    with desk.tail.listen(decision.tree, feed.put), desk.open(decision.tree, feed):
        async with asyncio.timeout(ANSWER_WITHIN):
            await desk.platform.bus.send(decision, SENDER, to=agent)
        if agent not in live_agents(desk.platform.registry.presences()):
            return None  # it will find the decision in its inbox
        until = time.monotonic() + TOLD_WITHIN
        while (left := until - time.monotonic()) > 0 and not feed.closed and not feed.overflowed:
            for stored in await feed.take(left):
                if stored.entry.cause == decision.id:
                    return stored.entry
    return None


async def _settled(desk: Desk, look: _Look, call: str, wanted: Ruling) -> Ruled:
    """What was decided before, if it says the same. Raises a problem that says what became of the call."""
    request, ruled = await _history(desk, look, call)
    if request is None:
        raise _unknown(call)
    if ruled is None:
        ended = look.run.result.state if look.run.result else "ended"
        raise Problem(410, "run-ended", f"run {look.run.id} is over ({ended}): call {call} was never made")
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ruled.at))
    if ruled.verdict == "expired":
        raise Problem(410, "approval-expired", f"nobody decided on call {call} in time: it expired at {at}")
    if not _says_the_same(ruled, request[1], wanted):
        raise Problem(409, "already-decided", f"call {call} was {ruled.verdict} by {ruled.by} at {at}")
    return ruled


def _says_the_same(ruled: Ruled, request: ApprovalRequested, wanted: Ruling) -> bool:
    if ruled.verdict != wanted.verdict:
        return False
    tool, arguments = request.name, request.arguments
    return (ruled.tool or tool, arguments if ruled.arguments is None else ruled.arguments) == (
        wanted.tool or tool,
        arguments if wanted.arguments is None else wanted.arguments,
    )


def _check(run: Run, held: CallState, wanted: Ruling) -> None:
    try:
        check_correction(run, held, wanted.tool, wanted.arguments)
    except CallError as error:
        raise invalid(str(error)) from error


# --- reading


async def _look(desk: Desk, call: str) -> _Look:
    """Raises a 404 problem when there is no such run, RetryableError."""
    run = parent_of(call)
    if run is None or not _CALL.fullmatch(call):
        raise _unknown(call)
    tree = tree_of(call)
    entries = [stored.entry for stored in await desk.platform.journal.read(tree, run)]
    if not entries:
        raise _unknown(call)
    state = fold(entries, run, tree)
    held = held_call(state, call) if state.phase is not Phase.DONE else None
    return _Look(state, entries, held)


async def _history(
    desk: Desk, look: _Look, call: str
) -> tuple[tuple[Entry, ApprovalRequested] | None, Ruled | None]:
    """The request for a person's word, and the word if there is one."""
    request, ruled = _search(look.entries, call)
    if request is None or (ruled is None and look.held is None):
        # It may lie before the last snapshot.
        earlier = await desk.history.read_run(look.run.tree, look.run.id)
        request, before = _search([stored.entry for stored in earlier], call)
        ruled = ruled or before
    return request, ruled


def _search(entries: list[Entry], call: str) -> tuple[tuple[Entry, ApprovalRequested] | None, Ruled | None]:
    request, ruled = None, None
    for entry in entries:
        for event in entry.events:
            if isinstance(event, ApprovalRequested) and event.call == call:
                request = (entry, event)
        ruled = ruled or _ruled(entry, call)
    return request, ruled


def _ruled(entry: Entry, call: str) -> Ruled | None:
    for event in entry.events:
        if isinstance(event, ApprovalDecided) and event.call == call:
            return Ruled(
                call=call,
                verdict=event.verdict,
                by=event.sender,
                at=entry.at,
                feedback=event.feedback,
                tool=event.name,
                arguments=event.arguments,
            )
    return None


async def _with_schemas(desk: Desk, calls: list[PendingCall]) -> list[Approval]:
    """Of a tool that lives, as it is offered now; else as the run was offered it."""
    cards = [presence.tool for presence in desk.platform.registry.presences()]
    schemas: dict[str, dict[str, Any] | None] = {
        card.name: card.input_schema for card in cards if card is not None
    }
    told = []
    for call in calls:
        if call.kind == "tool" and call.name not in schemas:
            schemas[call.name] = None
            with contextlib.suppress(Problem):  # the run may have been removed meanwhile
                schemas[call.name] = _schema_in((await _look(desk, call.call)).run, call.name, call.kind)
        schema = MEMBER_SCHEMA if call.kind == "member" else schemas[call.name]
        summary = desk.index.get(call.tree, call.run)
        task = summary.task if summary is not None else ""
        told.append(Approval(**msgspec.structs.asdict(call), task=task, schema=schema))
    return told


def _schema_in(run: Run, name: str, kind: str) -> dict[str, Any] | None:
    if kind == "member":
        return MEMBER_SCHEMA
    return run.tools[name].input_schema if name in run.tools else None


def _place(before: str) -> tuple[float, str]:
    at, _, call = before.partition(",")
    try:
        return float(at), call
    except ValueError:
        raise invalid(f"before: {before!r} is not the `next` of a page; start again without it") from None


def _unknown(call: str) -> Problem:
    detail = f"no call {call!r} was held back: GET /v1/approvals lists those that wait"
    return Problem(404, "unknown-approval", detail)
