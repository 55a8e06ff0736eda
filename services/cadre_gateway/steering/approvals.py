"""Calls that wait for a person, as the API shows them: the list, and one of them whole."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.approvals import Approval, ApprovalState, PendingCall
from cadre.api.runs import RunSummary
from cadre.engine.calls.call_check import MEMBER_SCHEMA
from cadre.kinds.tool_calling.arguments import with_values
from cadre.protocol.topology import is_within
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.run_summary import shortened
from cadre_gateway.requests.paging import page_of
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.steering.held_calls import HeldCalls, schema_in


class ApprovalPage(NamedTuple):
    """A part of the list."""

    calls: list[Approval]
    next: str | None
    """`before` of the next page."""


class ApprovalFilter(NamedTuple):
    """Which calls to list; None: all. `run` stands for itself and all runs below it."""

    agent: str | None = None
    run: str | None = None
    tree: str | None = None
    of_trees: Callable[[RunSummary], bool] = lambda _: True
    """Only calls of trees with such a root."""

    def matches(self, call: PendingCall) -> bool:
        """Whether the call is to be listed."""
        return (
            (self.agent is None or call.agent == self.agent)
            and (self.tree is None or call.tree == self.tree)
            and (self.run is None or is_within(call.run, self.run))
        )


@dataclass(frozen=True)
class Approvals:
    """Shows calls that wait for a person."""

    index: RunIndex
    registry: NatsRegistry
    held_calls: HeldCalls

    async def page(self, wanted: ApprovalFilter, limit: int, before: str | None) -> ApprovalPage:
        """Pending calls, newest first. Raises a 422 problem for a `before` that is not the `next` of a page."""
        calls = self.index.pending(_position(before) if before is not None else None)
        reached = (call for call in calls if wanted.matches(call) and self._is_of(call, wanted.of_trees))
        found, last = page_of(reached, limit)
        shown = await self._with_schemas(found)
        return ApprovalPage(shown, f"{last.requested_at!r},{last.call}" if last is not None else None)

    def decided(self, wanted: ApprovalFilter, limit: int, before: str | None) -> ApprovalPage:
        """Decided calls as far as the list has them, the newest decision first. Raises a 422 problem as `page` does."""
        calls = self.index.decided(_position(before) if before is not None else None)
        reached = (
            call for call in calls if wanted.matches(call.asked) and self._is_of(call.asked, wanted.of_trees)
        )
        found, last = page_of(reached, limit)
        shown = [self._shown(call.asked, None, state="decided", decision=call.decision) for call in found]
        return ApprovalPage(shown, f"{last.place[0]!r},{last.place[1]}" if last is not None else None)

    def _is_of(self, call: PendingCall, of_trees: Callable[[RunSummary], bool]) -> bool:
        root = self.index.get(call.tree, call.tree)
        return root is not None and of_trees(root)

    async def find(self, call: str) -> Approval:
        """Any call that was ever held back, with its arguments whole. Raises a 404 problem, RetryableError."""
        held = await self.held_calls.read(call)
        entry, request, ruled = await self.held_calls.history_of(held)
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
            expires=request.expires,
            task=shortened(held.run.task.task) if held.run.task else "",
            schema=schema_in(held.run, request.name, request.kind),
            state="decided" if ruled else undecided,
            decision=ruled,
        )

    async def _with_schemas(self, calls: list[PendingCall]) -> list[Approval]:
        """Adds the schema that a live tool offers now, else the one that the run was offered."""
        cards = [presence.tool for presence in self.registry.presences()]
        schemas: dict[str, dict[str, Any] | None] = {
            card.name: card.input_schema for card in cards if card is not None
        }
        shown = []
        for call in calls:
            if call.kind == "tool" and call.name not in schemas:
                schemas[call.name] = None
                with contextlib.suppress(Problem):  # the run may have been removed meanwhile
                    held = await self.held_calls.read(call.call)
                    schemas[call.name] = schema_in(held.run, call.name, call.kind)
            tool_schema = schemas.get(call.name) if call.kind == "tool" else None
            schema = MEMBER_SCHEMA if call.kind == "member" else tool_schema
            shown.append(self._shown(call, schema))
        return shown

    def _shown(self, call: PendingCall, schema: dict[str, Any] | None, **more: Any) -> Approval:
        summary = self.index.get(call.tree, call.run)
        task = summary.task if summary is not None else ""
        return Approval(**msgspec.structs.asdict(call), task=task, schema=schema, **more)


def _position(before: str) -> tuple[float, str]:
    at, _, call = before.partition(",")
    try:
        return float(at), call
    except ValueError:
        raise invalid(f"before: {before!r} is not the `next` of a page; start again without it") from None
