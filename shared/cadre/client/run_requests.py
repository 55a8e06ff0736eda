"""Requests about runs and the calls in them: sent again where they were lost, pages put together."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from msgspec import to_builtins

from cadre.api.runs import Approval, ApprovalDecision, RunDetail
from cadre.client.errors import Unreachable
from cadre.client.transport import RUNS, Transport, typed
from cadre.protocol.messages import CallEdit, Verdict

PAGE_SIZE = 200

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a run that a gateway did not answer for is asked for again."""


class RunRequests(Transport):
    """What a client and the handles of its runs both ask the gateway. Every method raises ClientError."""

    async def post_once(
        self, path: str, body: Any, *, key: str | None = None, method: str = "POST", by: str = ""
    ) -> dict[str, Any]:
        """Sends a request whose effect is wanted once: one that was lost is sent again, with the same key."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex, **({"Cadre-User": by} if by else {})}
        for tries, pause in enumerate((*_PAUSES_SECONDS, None)):
            try:
                return await self.request(method, path, json=body, headers=headers)
            except Unreachable as failure:
                if pause is None or not _is_worth_another_try(failure, first=tries == 0):
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def get_run(
        self, run_id: str, *, full: bool = False, limit: int | None = None, after: int = 0
    ) -> RunDetail:
        """The run with its output and all runs below it; `full` adds the steps of each.

        With `limit` each run has so many of those directly below it and of its steps, this one those behind the first
        `after`; `next` is `after` for the next page, None on the last.
        """
        params: dict[str, Any] = {"full": "true"} if full else {}
        if limit is not None:
            params |= {"limit": limit, "after": after}
        return typed(await self.request("GET", f"{RUNS}/{run_id}", params=params), RunDetail)

    async def approvals(self, *, agent: str | None = None, run: str | None = None) -> list[Approval]:
        """The calls that wait for a person, newest first; `run` stands for itself and all runs below it."""
        which = {"agent": agent, "run": run, "limit": PAGE_SIZE}
        pages = self.pages("/v1/approvals", "approvals", "before", which)
        return [typed(item, Approval) async for item in pages]

    async def approve(
        self,
        call: str,
        *,
        only: Sequence[int] | None = None,
        edits: Sequence[CallEdit | Mapping[str, Any]] = (),
        feedback: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Let a call be made that waits for a person.

        Of the calls that a question proposes `only` those with these numbers are made, from 1, or all as `edits`
        change, drop and add them. Raises Conflict when somebody else was first, it expired, or its run has ended.
        """
        some: dict[str, Any] = {"only": [*only]} if only is not None else {}
        some |= {"edits": to_builtins([*edits])} if edits else {}
        return await self._decide(call, "approved", feedback, by, some)

    async def reject(self, call: str, *, feedback: str = "", by: str = "") -> ApprovalDecision:
        """Turn down a call that waits for a person; the model reads the feedback. Raises Conflict as `approve`."""
        return await self._decide(call, "rejected", feedback, by, {})

    async def correct(
        self,
        call: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        tool: str | None = None,
        replace: bool = False,
        feedback: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Have a call made with these arguments in place of its own of the same names, or another tool called.

        `replace`: these are all arguments. Raises InvalidRequest for arguments that the tool does not take, Conflict as
        `approve`.
        """
        changes = {"arguments": arguments, "tool": tool, "replace": replace or None}
        given = {key: value for key, value in changes.items() if value is not None}
        return await self._decide(call, "corrected", feedback, by, given)

    async def _decide(
        self,
        call: str,
        verdict: Verdict,
        feedback: str,
        by: str,
        more: Mapping[str, Any],
    ) -> ApprovalDecision:
        body = {"verdict": verdict, "feedback": feedback, "by": by, **more}
        return typed(await self.request("POST", f"/v1/approvals/{call}", json=body), ApprovalDecision)


def _is_worth_another_try(failure: Unreachable, *, first: bool) -> bool:
    """Whether the gateway may be there again in a moment."""
    cause = failure.__cause__
    if isinstance(cause, httpx2.ConnectError):
        # There is none, unless one was there a moment ago.
        return not first
    return cause is None or isinstance(cause, (httpx2.ReadError, httpx2.RemoteProtocolError))
