"""The door for A2A's clients: an address for each agent, its card, and two bindings at it, JSON-RPC (versions 1.0
and 0.3) and HTTP with JSON (1.0), with errors in the form of each."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable
from email.utils import formatdate
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from cadre.protocol.a2a_03 import METHODS, artifact_to_03, message_from_03, status_to_03, task_to_03
from cadre.protocol.cards import AgentCard
from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.a2a.card import KEYS, card_of_agent, for_older_clients, signer_of
from cadre_gateway.doors.a2a.methods import (
    VERSION,
    AgentTasks,
    Messages,
    TaskWatch,
    check_version,
    perform,
    version_of,
)
from cadre_gateway.doors.a2a.objects import SUBMITTED, WORKING, Json, RpcCall
from cadre_gateway.doors.answers import count_request, json_answer
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.sender import RunService
from cadre_gateway.reading.directory import card_of, live_agents
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem
from cadre_gateway.streaming.event_stream import EventStream

AGENT = "/a2a/{agent}"

RpcId = str | int | None


def add_json_rpc_routes(routes: APIRouter, tasks: AgentTasks) -> None:
    """Add the one route of the binding."""

    @routes.post(f"{AGENT}/", summary="The same, as clients ask that join addresses")
    @routes.post(AGENT, summary="A call of A2A to an agent")
    async def post_call(agent: str, request: Request) -> Response:
        rpc_id: RpcId = None
        problem = None
        try:
            call = await _call(request)
            rpc_id = call.id
            answer = await _answer(tasks, agent, call, request)
        except FORESEEN as error:
            problem = as_problem(error)
            answer = json_answer(_refusal(rpc_id, problem))
        count_request(request, "a2a", AGENT, problem)
        return answer


async def _call(request: Request) -> RpcCall:
    data = await body.read(request)
    try:
        call = msgspec.json.decode(data, type=RpcCall)
    except msgspec.ValidationError as error:
        raise Problem(400, "not-a-call", f"not a call of JSON-RPC 2.0: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        says_json = "json" in request.headers.get("content-type", "json")
        code = "not-json" if says_json else "unsupported-content"
        raise Problem(400, code, f"the body is not JSON: {error}") from error
    if call.jsonrpc != "2.0":
        raise Problem(400, "not-a-call", 'not a call of JSON-RPC 2.0: write `"jsonrpc": "2.0"`')
    return call


async def _answer(tasks: AgentTasks, agent: str, call: RpcCall, request: Request) -> Response:
    check_version(request)
    method = METHODS.get(call.method, call.method)
    is_old = call.method != method
    told = result_of if is_old else _as_it_is
    params = params_of(method, call.params) if is_old else call.params
    result = await perform(tasks, agent, method, params, request)
    if isinstance(result, AsyncGenerator):
        return _stream(call.id, result, told)
    return json_answer({"jsonrpc": "2.0", "id": call.id, "result": told(result)})


def _as_it_is(result: Json) -> Json:
    return result


def _refusal(rpc_id: RpcId, problem: Problem) -> Json:
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error_of(problem)}


def _stream(rpc_id: RpcId, events: AsyncGenerator[Json], told: Callable[[Json], Json]) -> Response:
    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield frame({"jsonrpc": "2.0", "id": rpc_id, "result": told(event)})
        except FORESEEN as error:
            yield frame(_refusal(rpc_id, as_problem(error)))

    return EventStream(frames())


def frame(value: Json) -> bytes:
    """One event of a stream."""
    return b"data: %s\n\n" % msgspec.json.encode(value)


_INTERNAL = -32603
_INVALID_PARAMS = -32602
_SERVER_ERROR = 500
_BAD_REQUEST = 400
_STATUS = {-32001: 404, -32601: 404}
"""Over plain HTTP, by the code of JSON-RPC; what a caller did is 400 else."""


class _Kind(NamedTuple):
    code: int
    reason: str


_KINDS = {
    "unknown-run": _Kind(-32001, "TASK_NOT_FOUND"),
    "run-erased": _Kind(-32001, "TASK_NOT_FOUND"),
    "task-not-cancelable": _Kind(-32002, "TASK_NOT_CANCELABLE"),
    "run-ended": _Kind(-32004, "UNSUPPORTED_OPERATION"),
    "unsupported-content": _Kind(-32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    "no-extended-card": _Kind(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "unknown-version": _Kind(-32009, "VERSION_NOT_SUPPORTED"),
    "not-json": _Kind(-32700, "JSON_PARSE_ERROR"),
    "not-a-call": _Kind(-32600, "INVALID_REQUEST"),
    "unknown-method": _Kind(-32601, "METHOD_NOT_FOUND"),
}


def error_of(problem: Problem) -> dict[str, Any]:
    """Return the `error` member of a JSON-RPC answer, which distinguishes mistakes of the caller from failures here."""
    return {"code": _kind_of(problem).code, "message": problem.detail, "data": [_info(problem)]}


def status_of_error(problem: Problem) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an answer over plain HTTP: a google.rpc.Status."""
    kind = _KINDS.get(problem.code)
    status = _STATUS.get(kind.code, _BAD_REQUEST) if kind is not None else problem.status
    error = {"code": status, "status": _info(problem)["reason"], "message": problem.detail}
    return status, {"error": error | {"details": [_info(problem)]}}


def _kind_of(problem: Problem) -> _Kind:
    own = _INTERNAL if problem.status >= _SERVER_ERROR else _INVALID_PARAMS
    return _KINDS.get(problem.code, _Kind(own, ""))


def _info(problem: Problem) -> dict[str, Any]:
    reason = _kind_of(problem).reason
    if not reason:
        reason = "INVALID_PARAMS" if problem.code == "invalid-request" else problem.code.replace("-", "_").upper()
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": {"status": str(problem.status)},
    }


def params_of(method: str, params: Json) -> Json:
    """Return the parameters of a method as version 1.0 has them; values of another form are left to the method's
    checks."""
    if method == "ListTaskPushNotificationConfigs":
        return {"taskId": params.get("id")}
    if "pushNotificationConfigId" in params:
        return {"taskId": params.get("id"), "id": params["pushNotificationConfigId"]}
    if isinstance(push := params.get("pushNotificationConfig"), dict):
        return {**_push_of(push), "taskId": params.get("taskId")}
    configuration = params.get("configuration")
    found = dict(params)
    if "message" in params:
        found["message"] = message_from_03(params["message"])
    if isinstance(configuration, dict):
        found["configuration"] = {
            "returnImmediately": configuration.get("blocking") is False,
            "historyLength": configuration.get("historyLength"),
            "taskPushNotificationConfig": _push_of(configuration.get("pushNotificationConfig")),
        }
    return found


def result_of(result: Json) -> Any:
    """Return the result of version 1.0, answered or streamed, in the form of version 0.3."""
    if "configs" in result:
        return [_push(one) for one in result["configs"]]
    if "url" in result:
        return _push(result)
    if not result:
        return None
    if "task" in result:
        return task_to_03(result["task"])
    if "statusUpdate" in result:
        update = result["statusUpdate"]
        is_final = update["status"]["state"] not in (WORKING, SUBMITTED)
        return {
            **update,
            "kind": "status-update",
            "status": status_to_03(update["status"]),
            "final": is_final,
        }
    if "artifactUpdate" in result:
        update = result["artifactUpdate"]
        return {**update, "kind": "artifact-update", "artifact": artifact_to_03(update["artifact"])}
    return task_to_03(result)


def _push_of(push: Any) -> Any:
    about = push.get("authentication") if isinstance(push, dict) else None
    if not isinstance(about, dict):
        return push
    schemes = about.get("schemes") or [""]
    return {**push, "authentication": {"scheme": schemes[0], "credentials": about.get("credentials") or ""}}


def _push(config: Json) -> Json:
    found = {key: value for key, value in config.items() if key in ("id", "url", "token")}
    if "authentication" in config:
        found["authentication"] = {"schemes": [config["authentication"]["scheme"]]}
    return {"taskId": config["taskId"], "pushNotificationConfig": found}


Length = Annotated[int | None, Query(alias="historyLength")]


def add_http_json_routes(routes: APIRouter, tasks: AgentTasks) -> None:
    """Add the routes of the binding: those with a verb behind the task's id come first."""

    async def answer(agent: str, method: str, params: Json | None, request: Request, **of_path: str) -> Response:
        problem = None
        try:
            check_version(request)
            wanted = params if params is not None else await _body(request) | of_path
            result = await perform(tasks, agent, method, wanted, request)
            found = _http_stream(result) if isinstance(result, AsyncGenerator) else json_answer(result)
        except FORESEEN as error:
            problem = as_problem(error)
            found = _http_refusal(problem)
        count_request(request, "a2a", request.scope["route"].path, problem)
        return found

    @routes.post(f"{AGENT}/message:send", summary="A message to an agent")
    async def post_message(agent: str, request: Request) -> Response:
        return await answer(agent, "SendMessage", None, request)

    @routes.post(f"{AGENT}/message:stream", summary="The same, with what happens on the way")
    async def post_stream(agent: str, request: Request) -> Response:
        return await answer(agent, "SendStreamingMessage", None, request)

    @routes.post(f"{AGENT}/tasks/{{run}}:cancel", summary="End a task")
    async def post_cancel(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "CancelTask", None, request, id=run)

    @routes.api_route(f"{AGENT}/tasks/{{run}}:subscribe", methods=["GET", "POST"], summary="Follow a task")
    async def subscribe(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "SubscribeToTask", {"id": run}, request)

    pushes = f"{AGENT}/tasks/{{run}}/pushNotificationConfigs"

    @routes.post(pushes, summary="Send news of a task to an address")
    async def post_push(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "CreateTaskPushNotificationConfig", None, request, taskId=run)

    @routes.get(pushes, summary="The addresses of a task")
    async def get_pushes(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "ListTaskPushNotificationConfigs", {"taskId": run}, request)

    @routes.get(f"{pushes}/{{push}}", summary="An address of a task")
    async def get_push(agent: str, run: str, push: str, request: Request) -> Response:
        return await answer(agent, "GetTaskPushNotificationConfig", {"taskId": run, "id": push}, request)

    @routes.delete(f"{pushes}/{{push}}", summary="Stop sending news of a task")
    async def delete_push(agent: str, run: str, push: str, request: Request) -> Response:
        return await answer(agent, "DeleteTaskPushNotificationConfig", {"taskId": run, "id": push}, request)

    @routes.get(f"{AGENT}/tasks/{{run}}", summary="A task")
    async def get_task(agent: str, run: str, request: Request, length: Length = None) -> Response:
        return await answer(agent, "GetTask", {"id": run, "historyLength": length}, request)

    @routes.get(f"{AGENT}/tasks", summary="Tasks")
    async def get_tasks(  # noqa: PLR0913 - as the protocol names them
        agent: str,
        request: Request,
        context: Annotated[str, Query(alias="contextId")] = "",
        status: str = "",
        size: Annotated[int, Query(alias="pageSize")] = 50,
        token: Annotated[str, Query(alias="pageToken")] = "",
        length: Length = None,
        after: Annotated[str | None, Query(alias="statusTimestampAfter")] = None,
        artifacts: Annotated[bool, Query(alias="includeArtifacts")] = False,
    ) -> Response:
        wanted: Json = {"contextId": context, "status": status, "pageSize": size, "pageToken": token}
        wanted |= {"historyLength": length, "includeArtifacts": artifacts, "statusTimestampAfter": after}
        return await answer(agent, "ListTasks", wanted, request)


async def _body(request: Request) -> Json:
    try:
        found: Any = msgspec.json.decode(await body.read(request) or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "not-json", f"the body is not a JSON object: {error}") from error
    return dict(found)


def _http_refusal(problem: Problem) -> Response:
    status, content = status_of_error(problem)
    return json_answer(content, status)


def _http_stream(events: AsyncGenerator[Json]) -> Response:
    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield frame(event)
        except FORESEEN as error:
            yield frame(status_of_error(as_problem(error))[1])

    return EventStream(frames())


CARD = f"{AGENT}/.well-known/agent-card.json"
OWN_CARD = "/.well-known/agent-card.json"
_KEPT_SECONDS = 60


def _kept(request: Request, about: Json, value: Json, since: float = 0.0) -> Response:
    """Return a value that clients may keep for a minute; `about` is what it follows from, without a signature, `since`
    the time in Unix seconds from which it has been so."""
    mark = f'"{hashlib.sha256(msgspec.json.encode([about, "signatures" in value])).hexdigest()[:32]}"'
    is_known = request.headers.get("if-none-match") == mark
    answer = Response(status_code=304) if is_known else json_answer(value)
    answer.headers.update({"ETag": mark, "Cache-Control": f"private, max-age={_KEPT_SECONDS}"})
    if since:
        answer.headers["Last-Modified"] = formatdate(since, usegmt=True)
    answer.headers["Vary"] = "Authorization, A2A-Version"
    return answer


async def _version(version: Annotated[str, Query(alias=VERSION)] = "") -> None:
    """Let each route take the version as a parameter, which the protocol has in place of the header."""


def router(runs: RunService) -> APIRouter:
    """Return the routes of the door. A2A's own specification describes them, so the gateway's leaves them out."""
    routes = APIRouter(include_in_schema=False, dependencies=[Depends(_version)])
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    watch = TaskWatch(runs.pushes, answers)
    runs.pushes.body = watch.body
    settings = runs.cards
    signer = signer_of(settings)
    tasks = AgentTasks(runs, answers, Messages(runs, answers), watch)

    def cards_for(request: Request) -> dict[str, AgentCard]:
        caller = caller_of(request)
        live = live_agents(runs.registry.reachable())
        cards = {name: replicas[-1].agent for name, replicas in live.items()}
        reached = caller.agents | caller.teams
        return {name: one for name, one in cards.items() if one and (not caller.scoped or name in reached)}

    def card(agent: str, request: Request) -> Json:
        known = card_of(runs.registry.reachable(), agent)
        if known is None:
            raise Problem(404, "unknown-agent", f"no agent is named {agent!r}: GET /v1/agents lists them")
        url = f"{settings.url or str(request.base_url).rstrip('/')}/a2a/{agent}"
        return card_of_agent(known, url, asks_who_calls=bool(caller_of(request).key))

    def begun(agent: str) -> float:
        return live_agents(runs.registry.reachable())[agent][-1].started_at

    def signed(found: Json) -> Json:
        return signer.signed(found) if signer is not None else found

    @routes.get(CARD, summary="The card of an agent")
    async def get_card(agent: str, request: Request) -> Response:
        found = card(agent, request)
        # A signature is about version 1.0: its clients leave out what they do not know, and would find it broken.
        is_older = signer is None and not version_of(request).startswith("1.")
        older = for_older_clients(found, found["supportedInterfaces"][0]["url"])
        return _kept(request, found, older if is_older else signed(found), begun(agent))

    @routes.get(OWN_CARD, summary="The card of the deployment: of the agent that leads the others")
    async def get_own_card(request: Request) -> Response:
        cards = cards_for(request)
        if not cards:
            raise Problem(404, "unknown-agent", "no agent is live")
        below = {name for one in cards.values() for name in one.team}
        leader = min(cards, key=lambda name: (name in below, name))
        found = card(leader, request)
        return _kept(request, found, signed(found), begun(leader))

    @routes.get("/a2a", summary="The cards of all agents")
    async def get_cards(request: Request) -> Response:
        found = {"agents": [card(name, request) for name in sorted(cards_for(request))]}
        return _kept(request, found, found)

    @routes.get(KEYS, summary="The keys that cards are signed with")
    async def get_keys() -> Response:
        return json_answer(signer.keys if signer is not None else {"keys": []})

    add_json_rpc_routes(routes, tasks)
    add_http_json_routes(routes, tasks)
    return routes
