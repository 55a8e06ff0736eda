"""The gateway's Python client: starts runs, finds them, decides on calls, asks who is there."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

import msgspec

from cadre.api.automations import BudgetView, NoticeView, ScheduleView, TriggerView
from cadre.api.directory import Dimension, LiveAgent, LiveSandbox, LiveTool, Statistics
from cadre.api.runs import RunSummary
from cadre.client.run_handle import AsyncRunHandle
from cadre.client.run_options import StartOptions, WantedRuns, list_query, start_body
from cadre.client.transport import PAGE_SIZE, RUNS, RunRequests, Transport, typed
from cadre.options import explained
from cadre.protocol.memory import Found, Receipt, Remembered, SearchRequest, Selection


class Definitions(Transport):
    """Every method raises ClientError: NotFound for a name that there is not, InvalidRequest for a wrong key."""

    async def schedules(self) -> list[ScheduleView]:
        """Return all schedules, by name, each with its next tick."""
        return typed((await self.request("GET", "/v1/schedules"))["schedules"], list[ScheduleView])

    async def schedule(self, name: str, *, upcoming: int = 5) -> ScheduleView:
        """One schedule with so many next ticks and what became of its last ones."""
        path = f"/v1/schedules/{name}"
        return typed(await self.request("GET", path, params={"next": upcoming}), ScheduleView)

    async def put_schedule(self, name: str, spec: Mapping[str, Any]) -> ScheduleView:
        """Make or replace a schedule by the keys of its file: `agent`, `task`, `cron` or `every`, …"""
        return typed(await self.request("PUT", f"/v1/schedules/{name}", json=dict(spec)), ScheduleView)

    async def remove_schedule(self, name: str) -> None:
        """Remove a schedule; its runs go on."""
        await self.request("DELETE", f"/v1/schedules/{name}")

    async def triggers(self) -> list[TriggerView]:
        """Return all triggers, by name."""
        return typed((await self.request("GET", "/v1/triggers"))["triggers"], list[TriggerView])

    async def trigger(self, name: str) -> TriggerView:
        """One trigger."""
        return typed(await self.request("GET", f"/v1/triggers/{name}"), TriggerView)

    async def put_trigger(self, name: str, spec: Mapping[str, Any]) -> TriggerView:
        """Make or replace a trigger by the keys of its file: `agent`, `task`, `subject` or `webhook`, …"""
        return typed(await self.request("PUT", f"/v1/triggers/{name}", json=dict(spec)), TriggerView)

    async def remove_trigger(self, name: str) -> None:
        """Remove a trigger; runs that it started go on."""
        await self.request("DELETE", f"/v1/triggers/{name}")

    async def notices(self) -> list[NoticeView]:
        """Return all notices, by name."""
        return typed((await self.request("GET", "/v1/notices"))["notices"], list[NoticeView])

    async def notice(self, name: str) -> NoticeView:
        """One notice."""
        return typed(await self.request("GET", f"/v1/notices/{name}"), NoticeView)

    async def put_notice(self, name: str, spec: Mapping[str, Any]) -> NoticeView:
        """Make or replace a notice by the keys of its file: `url`, `secret_env`, `events`, …"""
        return typed(await self.request("PUT", f"/v1/notices/{name}", json=dict(spec)), NoticeView)

    async def remove_notice(self, name: str) -> None:
        """Remove a notice; what is on its way is not delivered."""
        await self.request("DELETE", f"/v1/notices/{name}")

    async def budgets(self) -> list[BudgetView]:
        """Return all standing budgets, by name, with what is used of them."""
        return typed((await self.request("GET", "/v1/budgets"))["budgets"], list[BudgetView])

    async def budget(self, name: str) -> BudgetView:
        """One budget."""
        return typed(await self.request("GET", f"/v1/budgets/{name}"), BudgetView)

    async def put_budget(self, name: str, spec: Mapping[str, Any]) -> BudgetView:
        """Make or replace a budget by the keys of its file: `window`, `tokens` or `cost`, `user`, …"""
        return typed(await self.request("PUT", f"/v1/budgets/{name}", json=dict(spec)), BudgetView)

    async def remove_budget(self, name: str) -> None:
        """Remove a budget."""
        await self.request("DELETE", f"/v1/budgets/{name}")


T = TypeVar("T")


HINTS = {
    "acompletion": "run(agent, task)",
    "aclose": "close()",
    "ask": "run(agent, task)",
    "assistants": "agents()",
    "audio": "the HTTP API by request(method, path)",
    "batches": "start(agent, task) once for each",
    "beta": "start(agent, task, session=NAME), and attach(id)",
    "cancel": "attach(run).cancel()",
    "chat": "run(agent, task), or the openai client at the gateway's /v1",
    "completions": "run(agent, task), or the openai client at the gateway's /v1",
    "connect": "Client(url, api_key=…)",
    "create": "start(agent, task)",
    "crons": "schedules()",
    "delete": "request('DELETE', path)",
    "embeddings": "models are the agents' own",
    "execute_workflow": "run(agent, task)",
    "from_env": "Client() reads CADRE_GATEWAY_URL and CADRE_API_KEY",
    "get": "get_run(id), or request('GET', path)",
    "get_run_state": "get_run(id).state",
    "get_workflow_handle": "attach(id)",
    "headers": "api_key is the only header that it needs",
    "http_client": "it has its own connections",
    "invoke": "run(agent, task)",
    "kickoff": "run(agent, task)",
    "list_runs": "runs()",
    "max_retries": "requests for runs are repeated until one is answered",
    "messages": "attach(run).tell(text)",
    "models": "agents()",
    "patch": "request('PATCH', path)",
    "post": "request('POST', path)",
    "put": "request('PUT', path)",
    "responses": "run(agent, task), or the openai client at the gateway's /v1",
    "result_type": "output_type",
    "start_workflow": "start(agent, task)",
    "store": "memories(selection) and search_memory(query, selection)",
    "submit": "start(agent, task)",
    "with_options": "options are those of each call",
    "model": "an agent names its own model",
    "stream_mode": "run.stream()",
    "temperature": "an agent's model has its temperature",
    "timeout": "wait(timeout=…) bounds the wait, deadline=… the run",
    "tools": "an agent names its own tools",
    "decide": "approve, reject or correct",
    "result": "attach(run).result()",
    "sessions": "start and run take session=NAME",
    "stream": "start(agent, task).stream()",
    "threads": "start and run take session=NAME",
    "wait": "attach(run).wait()",
}
"""Methods and options of other libraries' clients, each with what does the same here."""


RESOURCES = {
    "runs": {
        "approve": "approve(call)",
        "cancel": "attach(id).cancel()",
        "create": "start(agent, task)",
        "create_and_poll": "run(agent, task)",
        "delete": "attach(id).erase()",
        "get": "get_run(id)",
        "join": "attach(id).wait()",
        "list": "runs(limit=…)",
        "poll": "attach(id).wait()",
        "resume": "attach(id).resume()",
        "retrieve": "get_run(id)",
        "start": "start(agent, task)",
        "stream": "start(agent, task).stream()",
        "submit": "start(agent, task)",
        "submit_tool_outputs": "attach(id).signal(name, payload), or approve(call)",
        "update": "attach(id).tell(text)",
        "wait": "run(agent, task), or attach(id).wait()",
    },
    "agents": {
        "create": "an agent's file, or cadre.Agent, and `cadre up`",
        "get": "agents()",
        "list": "agents()",
        "retrieve": "agents()",
        "run": "run(agent, task)",
    },
    "approvals": {
        "approve": "approve(call)",
        "correct": "correct(call, arguments)",
        "get": "approvals()",
        "list": "approvals(run=id)",
        "reject": "reject(call)",
    },
    "memories": {
        "delete": "forget(id)",
        "list": "memories(selection)",
        "search": "search_memory(query, selection)",
    },
    "tools": {"call": "an agent calls it", "get": "tools()", "list": "tools()"},
    **{
        f"{one}s": {
            "create": f"put_{one}(name, spec)",
            "delete": f"remove_{one}(name)",
            "get": f"{one}(name)",
            "list": f"{one}s()",
            "retrieve": f"{one}(name)",
            "update": f"put_{one}(name, spec)",
        }
        for one in ("schedule", "trigger", "notice", "budget")
    },
}
"""Attributes of other libraries' clients below names that are methods here, each with its equivalent."""


@explained(HINTS, RESOURCES)
class AsyncClient(Definitions, RunRequests):
    """A client of one gateway, for event loops: starts runs, follows them, decides on their calls.

    Close it, or use it as an async context manager. `Client` has the same methods without an event loop.

    Args:
        url: The gateway's address; by default CADRE_GATEWAY_URL, else that of the `cadre up` of this folder.
        api_key: The key that requests carry; by default CADRE_API_KEY.

    Raises:
        ClientError: From every method: `Unreachable`, `NotFound`, `InvalidRequest`, `Conflict`, and others of
            `cadre.client`, each with the `status` and `problem` of the gateway's answer.

    Examples:
        >>> import asyncio
        >>> async def count() -> str:
        ...     async with AsyncClient() as cadre:
        ...         run = await cadre.start("writer", "How many words has 'to be or not to be'?", deadline=600)
        ...         return await run.result(timeout=60)
        >>> asyncio.run(count())
        'six'
    """

    if not TYPE_CHECKING:  # type checkers know that these do not exist

        def __enter__(self) -> NoReturn:
            raise TypeError("AsyncClient has methods to await: write `async with`, or Client in its place")

        def __exit__(self, *_: object) -> None:
            """Is there, as Python looks for it first."""

    async def start(
        self, agent: str, task: str, *, output_type: Any = None, **options: Unpack[StartOptions]
    ) -> AsyncRunHandle:
        """Start a run; return when it is accepted. A request that was lost is sent again and starts one run.

        With an `output_type` (a pydantic model, dataclass, `list[int]` …) the answer of this run has that form, in
        place of the agent's own, and `result` returns it as that type.
        Raises NotFound for an agent that is not live, Conflict for a session whose last run goes on,
        TooManyRequests, OSError for a file that cannot be read.
        """
        body = await asyncio.to_thread(start_body, agent, task, options, output_type)  # it reads files
        key = options.get("idempotency_key")
        return await AsyncRunHandle.post(self, body, key=key, output_type=output_type)

    @overload
    async def run(
        self,
        agent: str,
        task: str,
        *,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Any: ...

    @overload
    async def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: type[T],
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> T: ...

    async def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Start a run, wait for its end, return its answer: `start` and `AsyncRunHandle.result` in one.

        After `timeout` seconds it raises TimedOut, and the run goes on; `deadline` ends the run.
        """
        started = await self.start(agent, task, output_type=output_type, **options)
        return await started.result(timeout=timeout)

    def attach(self, run_id: str) -> AsyncRunHandle:
        """Return a handle of a run that was started elsewhere; whether there is one is not asked."""
        return AsyncRunHandle(self, run_id)

    async def runs(self, **wanted: Unpack[WantedRuns]) -> AsyncGenerator[RunSummary, None]:
        """Yield root runs, newest first unless sorted otherwise, page by page."""
        most = wanted.get("limit")
        if most is not None and most < 1:
            raise ValueError(f"limit is {most}: write 1 or more, or leave it out for all runs")
        query = {**list_query(wanted), "limit": min(PAGE_SIZE, most or PAGE_SIZE)}
        found = 0
        async for item in self.pages(RUNS, "runs", "before", query):
            yield typed(item, RunSummary)
            found += 1
            if found == most:
                return

    async def agents(self) -> list[LiveAgent]:
        """Return the live agents, by name."""
        return typed((await self.request("GET", "/v1/agents"))["agents"], list[LiveAgent])

    async def tools(self) -> list[LiveTool]:
        """Return the live tools, by name."""
        return typed((await self.request("GET", "/v1/tools"))["tools"], list[LiveTool])

    async def sandboxes(self) -> list[LiveSandbox]:
        """Return the live pools of sandboxes, by name."""
        return typed((await self.request("GET", "/v1/sandboxes"))["sandboxes"], list[LiveSandbox])

    async def statistics(
        self,
        /,
        *by: Dimension,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        **only: str,
    ) -> Statistics:
        """Return what agents have used, by some of `day`, `team`, `agent`, `user`, `session`, `model`, `tool`; `only`
        those of these names. The last 30 days unless a time is given, in Unix seconds or as datetimes.
        """
        times = [one.timestamp() if isinstance(one, datetime) else one for one in (since, until)]
        params = {"by": ",".join(by), "since": times[0], "until": times[1], **only}
        return typed(await self.request("GET", "/v1/stats", params=params), Statistics)

    async def run_schedule(self, name: str, *, idempotency_key: str | None = None) -> AsyncRunHandle:
        """Start a run of the schedule now; one for each `idempotency_key`."""
        return AsyncRunHandle(self, (await self.post_once(f"/v1/schedules/{name}/run", {}, key=idempotency_key))["id"])

    async def blob(self, ref: str) -> bytes:
        """Return the content of a file in an answer, by the `ref` of its `{"$file": …}`."""
        content = BytesIO()
        await self.fetch(f"/v1/blobs/{ref.removeprefix('blob:')}", content)
        return content.getvalue()

    async def search_memory(self, query: str, selection: Selection, *, k: int = 5) -> Found:
        """Return the `k` memories that fit the query best, of those that the selection means."""
        body = msgspec.to_builtins(SearchRequest(selection=selection, query=query, k=k))
        return typed(await self.request("POST", "/v1/memory/search", json=body), Found)

    async def memories(self, selection: Selection) -> AsyncGenerator[Remembered, None]:
        """Yield the memories that the selection means, page by page."""
        async for item in self.pages("/v1/memory", "memories", "after", _parameters(selection)):
            yield typed(item, Remembered)

    async def forget(self, what: str | Selection, *, confirm: bool = True) -> Receipt:
        """Remove one memory by its id, or all that a selection means; without `confirm` only counts the latter."""
        if isinstance(what, str):
            return typed(await self.request("DELETE", f"/v1/memory/{what}"), Receipt)
        params = {**_parameters(what), "confirm": "true" if confirm else "false"}
        return typed(await self.request("DELETE", "/v1/memory", params=params), Receipt)


def _parameters(selection: Selection) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(selection)
    return {key: "true" if value is True else value for key, value in found.items()}
