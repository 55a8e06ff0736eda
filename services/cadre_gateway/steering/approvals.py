"""Calls that wait for a person, as the API shows them: the list, and one of them whole."""

import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import Approval, ApprovalState, PendingCall
from cadre.kinds.tool_calling.arguments import with_values
from cadre.protocol.cards import presence_order
from cadre.spec.member_call import call_schema
from cadre.views.held_calls import DecidedCall
from cadre.views.run_summary import shortened
from cadre_gateway.index.call_list import CallFilter, ListedCall, listed_calls
from cadre_gateway.index.run_filter import Cursor, cursor_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.steering.decide import HeldCalls, history_of, schema_in


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
            task=shortened(held.run.task.task) if held.run.task else "",
            schema=schema_in(held.run, request.name, request.kind, held.pending),
            state="decided" if ruled else undecided,
            decision=ruled,
        )

    async def _with_schemas(self, calls: list[ListedCall]) -> list[Approval]:
        """Adds the schema that a live tool or member offers now, else the one that the run was offered."""
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
