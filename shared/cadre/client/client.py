"""The gateway's Python client: starts runs, finds them, decides on calls, asks who is there."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, Literal, TypeVar, Unpack, overload

import httpx2
import msgspec

from cadre.api.approvals import Approval, ApprovalDecision
from cadre.api.directory import LiveAgent, LiveSandbox, LiveTool
from cadre.api.runs import RunDetail, RunSummary, State
from cadre.api.statistics import Dimension, Statistics
from cadre.client.definitions import Definitions
from cadre.client.errors import Unreachable
from cadre.client.follow_runs import LATE_SECONDS
from cadre.client.run_handle import RunHandle
from cadre.client.run_options import StartOptions, start_body
from cadre.client.transport import RUNS, typed
from cadre.protocol.memory import Found, Receipt, Remembered, SearchRequest, Selection

T = TypeVar("T")

_PAGE_SIZE = 200

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a run that a gateway did not answer for is asked for again."""


class Client(Definitions):
    """A client of one gateway: that of `url`, of CADRE_GATEWAY_URL, or of the `cadre up` of this folder; it tells it
    the API key `key`, else CADRE_KEY.

    Close it, or use it as an async context manager. Every method raises ClientError.
    """

    async def start(self, agent: str, task: str, **options: Unpack[StartOptions]) -> RunHandle:
        """Starts a run; returns when it is accepted. A request that was lost is sent again and starts one run.

        Raises NotFound for an agent that is not live, Conflict for a session whose last run goes on,
        TooManyRequests, OSError for a file that cannot be read.
        """
        body = await asyncio.to_thread(start_body, agent, task, options)  # it reads files
        return await self.post_run(body, key=options.get("key"))

    @overload
    async def run(
        self, agent: str, task: str, *, timeout: float | None = None, **options: Unpack[StartOptions]
    ) -> Any: ...

    @overload
    async def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: type[T],
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> T: ...

    async def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Starts a run, waits for its end, returns its answer: `start` and `RunHandle.result` in one."""
        started = await self.start(agent, task, **options)
        return await started.result(output_type, timeout=timeout)

    async def post_run(self, body: dict[str, Any], path: str = RUNS, *, key: str | None = None) -> RunHandle:
        """Posts a request for a run as the HTTP API has it; raises as `start`."""
        answer = await self.post_once(path, body, key=key)
        return RunHandle(self, str(answer["id"]), answer.get("later_files", ()))

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

    def attach(self, run_id: str) -> RunHandle:
        """A handle of a run that was started elsewhere; whether there is one is not asked."""
        return RunHandle(self, run_id)

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

    async def runs(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: float | datetime | None = None,
    ) -> AsyncGenerator[RunSummary, None]:
        """Yields root runs, newest first, page by page; `since` is the start, in Unix seconds or as a datetime."""
        start = since.timestamp() if isinstance(since, datetime) else since
        label = [f"{name}={value}" for name, value in (labels or {}).items()] or None
        which = {"state": state, "agent": agent, "session": session, "label": label, "limit": _PAGE_SIZE}
        async for item in self.pages(RUNS, "runs", "before", which):
            run = typed(item, RunSummary)
            if start is not None and run.started_at < start - LATE_SECONDS:
                return
            if start is None or run.started_at >= start:
                yield run

    async def agents(self) -> list[LiveAgent]:
        """The live agents, by name."""
        return typed((await self.request("GET", "/v1/agents"))["agents"], list[LiveAgent])

    async def tools(self) -> list[LiveTool]:
        """The live tools, by name."""
        return typed((await self.request("GET", "/v1/tools"))["tools"], list[LiveTool])

    async def sandboxes(self) -> list[LiveSandbox]:
        """The live pools of sandboxes, by name."""
        return typed((await self.request("GET", "/v1/sandboxes"))["sandboxes"], list[LiveSandbox])

    async def statistics(
        self,
        /,
        *by: Dimension,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        **only: str,
    ) -> Statistics:
        """What agents have used, by some of `day`, `team`, `agent`, `user`, `session`, `model`, `tool`; `only` those of
        these names. The last 30 days unless a time is given, in Unix seconds or as datetimes."""
        times = [one.timestamp() if isinstance(one, datetime) else one for one in (since, until)]
        params = {"by": ",".join(by), "from": times[0], "to": times[1], **only}
        return typed(await self.request("GET", "/v1/stats", params=params), Statistics)

    async def approvals(self, *, agent: str | None = None, run: str | None = None) -> list[Approval]:
        """The calls that wait for a person, newest first; `run` stands for itself and all runs below it."""
        which = {"agent": agent, "run": run, "limit": _PAGE_SIZE}
        pages = self.pages("/v1/approvals", "approvals", "before", which)
        return [typed(item, Approval) async for item in pages]

    async def decide(
        self,
        call: str,
        decision: Literal["approve", "reject", "correct"],
        correction: Mapping[str, Any] | None = None,
        *,
        note: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Decides on a call that waits: lets it be made, turns it down (the model reads the note), or corrects it.

        A correction is `arguments` in place of the call's own of the same names (`replace`: of all), or a `tool`.
        Raises Conflict when somebody else was first, it expired, or its run has ended.
        """
        body = {"decision": decision, "feedback": note, "by": by, **(correction or {})}
        return typed(await self.request("POST", f"/v1/approvals/{call}", json=body), ApprovalDecision)

    async def run_schedule(self, name: str, *, key: str | None = None) -> RunHandle:
        """Starts a run of the schedule now; one for each `key`."""
        return RunHandle(self, (await self.post_once(f"/v1/schedules/{name}/run", {}, key=key))["id"])

    async def blob(self, ref: str) -> bytes:
        """The content of a file in an answer, by the `ref` of its `{"$file": …}`."""
        content = BytesIO()
        await self.fetch(f"/v1/blobs/{ref.removeprefix('blob:')}", content)
        return content.getvalue()

    async def search_memory(self, query: str, selection: Selection, *, k: int = 5) -> Found:
        """The `k` memories that fit the query best, of those that the selection means."""
        body = msgspec.to_builtins(SearchRequest(selection=selection, query=query, k=k))
        return typed(await self.request("POST", "/v1/memory/search", json=body), Found)

    async def memories(self, selection: Selection) -> AsyncGenerator[Remembered, None]:
        """Yields the memories that the selection means, page by page."""
        async for item in self.pages("/v1/memory", "memories", "after", _parameters(selection)):
            yield typed(item, Remembered)

    async def forget(self, what: str | Selection, *, confirm: bool = True) -> Receipt:
        """Removes one memory by its id, or all that a selection means; without `confirm` only counts the latter."""
        if isinstance(what, str):
            return typed(await self.request("DELETE", f"/v1/memory/{what}"), Receipt)
        params = {**_parameters(what), "confirm": "true" if confirm else "false"}
        return typed(await self.request("DELETE", "/v1/memory", params=params), Receipt)


def _parameters(selection: Selection) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(selection)
    return {key: "true" if value is True else value for key, value in found.items()}


def _is_worth_another_try(failure: Unreachable, *, first: bool) -> bool:
    """Whether the gateway may be there again in a moment."""
    cause = failure.__cause__
    if isinstance(cause, httpx2.ConnectError):
        # There is none, unless one was there a moment ago.
        return not first
    return cause is None or isinstance(cause, (httpx2.ReadError, httpx2.RemoteProtocolError))
