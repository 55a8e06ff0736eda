"""The rules of the audit trail: the routes that it records, and what it keeps of each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import Scope

from cadre.adapters.nats.audit import NatsAudit
from cadre.api.access import AuditView
from cadre.ports import Clock
from cadre.protocol.access import AuditEntry
from cadre_gateway.access.principal import Principal
from cadre_gateway.requests.parameters import utf8

ACTIONS = {
    "POST /v1/approvals/{call}": "approval.decide",
    "POST /v1/runs/{run}/cancel": "run.cancel",
    "POST /v1/runs/{run}/signals/{name}": "run.signal",
    "POST /v1/runs/{run}/messages": "run.message",
    "PATCH /v1/runs/{run}/queue": "run.edit_queue",
    "PATCH /v1/runs/{run}/plan": "run.edit_plan",
    "POST /v1/runs/{run}/fork": "run.fork",
    "POST /v1/runs/{run}/resume": "run.resume",
    "DELETE /v1/runs/{run}": "run.erase",
    "POST /v1/runs/import": "run.import",
    "POST /v1/index/rebuild": "index.rebuild",
    "GET /v1/runs/{run}/export": "run.export",
    "PUT /v1/runs/{run}/files/{path}": "file.write",
    "DELETE /v1/runs/{run}/files/{path}": "file.remove",
    "DELETE /v1/memory": "memory.forget",
    "DELETE /v1/memory/{memory_id}": "memory.forget",
    "GET /v1/memory/export": "memory.export",
    "POST /v1/memory/import": "memory.import",
    "DELETE /v1/dead-letters/{letter}": "dead_letter.drop",
    "POST /v1/dead-letters/{letter}/retry": "dead_letter.retry",
    "POST /v1/schedules": "schedule.make",
    "PUT /v1/schedules/{name}": "schedule.make",
    "DELETE /v1/schedules/{name}": "schedule.remove",
    "POST /v1/schedules/{name}/pause": "schedule.pause",
    "POST /v1/schedules/{name}/resume": "schedule.resume",
    "POST /v1/schedules/{name}/run": "schedule.run",
    "PUT /v1/triggers/{name}": "trigger.make",
    "POST /v1/triggers/{name}/try": "trigger.try",
    "DELETE /v1/triggers/{name}": "trigger.remove",
    "PUT /v1/notices/{name}": "notice.make",
    "DELETE /v1/notices/{name}": "notice.remove",
    "PUT /v1/budgets/{name}": "budget.make",
    "DELETE /v1/budgets/{name}": "budget.remove",
    "DELETE /v1/agents/{agent}": "agent.retire",
    "DELETE /v1/tools/{tool}": "tool.retire",
    "DELETE /v1/sandboxes/{pool}": "sandbox.retire",
    "DELETE /v1/queues/{kind}/{name}": "queue.remove",
    "POST /v1/agents/{agent}/rollout": "rollout.change",
    "POST /v1/keys": "key.make",
    "DELETE /v1/keys/{id}": "key.revoke",
}
"""The recorded routes, in addition to those that doors declare. A run's journal has the person who started it."""

_PAGE_SIZE = 500
_MAX_TARGET_CHARS = 512
_MAX_WHO_CHARS = 200
_TARGETS = ("run", "call", "memory_id", "letter", "response", "conversation", "file", "id", "name", "agent")
"""The variables of a path that say what something was done to; the first that there is counts."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of entries; None: all."""

    since: float | None = None
    until: float | None = None
    who: str | None = None
    action: str | None = None
    """An action, or the beginning of some, such as `run`."""
    target: str | None = None

    def matches(self, entry: AuditEntry) -> bool:
        """Return whether the entry is to be shown."""
        return (
            (self.until is None or entry.at < self.until)
            and (self.who is None or entry.who == self.who)
            and (self.action is None or f"{entry.action}.".startswith(f"{self.action}."))
            and (self.target is None or entry.target == self.target)
        )


@dataclass(frozen=True)
class AuditTrail:
    """Writes and shows what was done. Every method raises RetryableError."""

    stored: NatsAudit
    clock: Clock
    gateway: str
    """Name of this replica."""

    async def record(
        self, scope: Scope, action: str, variables: dict[str, str], caller: Principal, status: int
    ) -> None:
        """Write down what was asked for and how it is about to be answered."""
        named = caller.name or utf8(Headers(scope=scope).get("cadre-user")) or ""
        detail: dict[str, str] = scope["state"].get("audit", {})
        entry = AuditEntry(
            at=self.clock.now(),
            action=action,
            who=(named or detail.get("by", ""))[:_MAX_WHO_CHARS],
            key=caller.key,
            target=next((variables[name] for name in _TARGETS if name in variables), "")[:_MAX_TARGET_CHARS],
            status=status,
            source=(scope.get("client") or ("",))[0],
            gateway=self.gateway,
            detail={key: value for key, value in detail.items() if key != "by"},
        )
        await self.stored.append(entry)

    async def note_decision(self, caller: Principal, by: str, call: str, source: str) -> None:
        """Record a decision on a call that did not come by HTTP."""
        entry = AuditEntry(
            at=self.clock.now(),
            action="approval.decide",
            who=by[:_MAX_WHO_CHARS],
            key=caller.key,
            target=call,
            status=200,
            source=source,
            gateway=self.gateway,
        )
        await self.stored.append(entry)

    async def page(self, wanted: AuditFilter, limit: int, before: int | None) -> list[AuditView]:
        """At most `limit` entries, newest first; with `before`, those below that id."""
        found: list[AuditView] = []
        async for view in self._views(before, lambda at: wanted.since is None or at >= wanted.since):
            if wanted.matches(view):
                found.append(view)
            if len(found) == limit:
                break
        return found

    async def _views(self, before: int | None, goes_on: Callable[[float], bool]) -> AsyncIterator[AuditView]:
        while page := await self.stored.newest(_PAGE_SIZE, before):
            for one in page:
                if one.entry is None:
                    continue
                if not goes_on(one.entry.at):
                    return
                yield AuditView(id=one.seq, **msgspec.structs.asdict(one.entry))
            before = page[-1].seq


def leave_out(request: Request) -> None:
    """Have the request left out of the audit trail, for a route of which only some are recorded."""
    request.state.audited = False


def note(request: Request, **detail: str) -> None:
    """Say more of this request in the audit trail. No secret, task or argument belongs there."""
    request.state.audit = detail
