"""Schemas of bodies and answers for /openapi.json, taken from the structs that are read and written."""

import re
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from msgspec import UNSET, UnsetType

from cadre.api.directory import LiveAgent, LiveSandbox, LiveTool, ServiceQueue
from cadre.api.runs import Accepted, Approval, RunSummary, State
from cadre.journal.unions import close
from cadre.protocol.deltas import Delta
from cadre.structs import prose_of
from cadre.tools.workspace import FileEntry
from cadre.views.rows import RowsChanged
from cadre_gateway.access.gate import COOKIE
from cadre_gateway.access.rules import RouteRules
from cadre_gateway.requests.prefix import address
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.streaming.event_stream import Shown

_REF = "#/components/schemas/{name}"

Tag = dict[str, Any]
"""A tag of the description, such as a door that is open."""

Responses = dict[int | str, dict[str, Any]]
"""Descriptions of answers by status."""


class RunList(msgspec.Struct):
    """A page of runs, newest first: root runs, or those directly below one."""

    runs: list[RunSummary]
    next: str | None
    """`before` of the next page."""
    total: int | UnsetType = UNSET
    """Total number of them, if that was asked for."""


class AgentList(msgspec.Struct):
    """The live agents, by name."""

    agents: list[LiveAgent]


class ToolList(msgspec.Struct):
    """The live tools, by name."""

    tools: list[LiveTool]


class SandboxList(msgspec.Struct):
    """The live sandboxes, by pool."""

    sandboxes: list[LiveSandbox]


class QueueList(msgspec.Struct):
    """The queues of agents, tools and sandbox pools, by kind and name."""

    queues: list[ServiceQueue]


class ApprovalList(msgspec.Struct):
    """A page of calls that wait for a person, newest first."""

    approvals: list[Approval]
    next: str | None
    """`before` of the next page."""


class FileList(msgspec.Struct):
    """The files of a run's workspace, by path."""

    files: list[FileEntry]


class CancelAnswer(msgspec.Struct):
    """The run that was asked to end, in the state that it was in."""

    id: str
    state: State


class ProblemDocument(msgspec.Struct):
    """RFC 9457; `code` is stable, `detail` says what to do."""

    type: str
    code: str
    title: str
    status: int
    detail: str
    instance: str


_schemas: set[type[msgspec.Struct]] = {Shown, Delta, RowsChanged}
"""The structs that the routes read and answer: each is added as it is referred to. These are named by a description
alone."""


_EVENT = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("id", "event", "data")},
    "required": ["data"],
}
"""One event of a stream: before OpenAPI 3.2, the schema of a stream is that of each event."""


def answers(kind: type[msgspec.Struct], status: int = 200) -> Responses:
    """Return a route that answers with this status and such a struct."""
    return {status: _answer("Found" if status == HTTPStatus.OK else "Begun", kind), "default": _PROBLEM}


def streams(description: str, media_type: str, kind: type[msgspec.Struct] | None = None) -> Responses:
    """Return a route that answers 200 with a stream; with `kind` each line of it is such a struct."""
    schema = _bytes(media_type) if kind is None else {"schema": _ref(kind)}
    return {200: {"description": description, "content": {media_type: schema}}, "default": _PROBLEM}


def traces(kind: type[msgspec.Struct]) -> Responses:
    """Return a route that answers 200 with such a struct, with OTLP's JSON or with a page."""
    otlp = {"type": "object", "required": ["resourceSpans"]}
    json_forms = {"schema": {"anyOf": [_ref(kind), otlp]}}
    content = {"application/json": json_forms, "text/html": {"schema": {"type": "string"}}}
    return {200: {"description": "In the form that `format` names", "content": content}, "default": _PROBLEM}


def operation(
    body: type[msgspec.Struct] | str,
    answers: dict[str, tuple[str, type[msgspec.Struct]]],
    *,
    required: bool = True,
    streams: str = "",
) -> dict[str, Any]:
    """Return a route whose body is such a struct as JSON, or of the media type `body`; `answers` by status, each with
    its description, that of 200 also as a stream of the media type `streams`."""
    content = {body: _bytes(body)} if isinstance(body, str) else _content(body)
    responses = {status: _answer(description, kind) for status, (description, kind) in answers.items()}
    if streams:
        responses["200"]["content"] |= {streams: _bytes(streams)}
    return {
        "requestBody": {"required": required, "content": content},
        "responses": {**responses, "default": _PROBLEM},
    }


_DESCRIPTION = (
    "Runs of agents: begun, followed, decided on, replayed. Errors are problems of RFC 9457 with a stable `code`."
    " The protocols that the gateway speaks in addition have a tag each, which links their specification."
)
_LICENSE = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
_KEY, _SESSION = "key", "session"
_SCHEMES = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or where the gateway knows an OpenID provider, a token of that",
    },
    _SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A sign-in with a browser, by `POST /v1/session`",
    },
}
_TAGS = {
    "runs": "Runs: begun, read, followed, continued",
    "steering": "Messages, signals and changes to runs at work",
    "approvals": "Calls that wait for a person",
    "files": "Files of runs",
    "memory": "What agents keep beyond their runs",
    "directory": "Agents, tools and sandboxes that are there",
    "rollouts": "Revisions of agents that share their runs",
    "schedules": "Runs that begin by the clock",
    "triggers": "Runs that begin by webhooks",
    "notices": "Webhooks that say what happens",
    "budgets": "Standing budgets",
    "statistics": "What was used",
    "dead letters": "Messages that could not be delivered",
    "index": "The database that lists of runs come from",
    "access": "Keys, sign-ins, the audit trail",
}


def describe(app: FastAPI, rules: RouteRules, doors: Sequence[Tag], *, asks_who_calls: bool) -> None:
    """Add to the application's document: schemas, servers, who may call what, and the doors that are open."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schema["info"] |= {"description": _DESCRIPTION, "license": _LICENSE}
            close()  # the schemas of a run hold steps, and each kind has its part in them
            _, components = msgspec.json.schema_components(_schemas, ref_template=_REF)
            _describe_operations(schema["paths"], rules)
            # FastAPI's own form of 422, which is answered nowhere: every error is a problem.
            own = {name: one for name, one in _schemas_in(schema).items() if "ValidationError" not in name}
            for one in components.values():
                _for_generators(one)
            schema["components"] = {"schemas": own | components, "securitySchemes": _SCHEMES}
            schema["security"] = [{_KEY: []}, {_SESSION: []}] if asks_who_calls else [{}]
            schema["servers"] = [{"url": address("") or "/"}]
            schema["tags"] = [{"name": name, "description": about} for name, about in _TAGS.items()]
            schema["tags"] += doors
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _describe_operations(paths: dict[str, Any], rules: RouteRules) -> None:
    """Give operations short names, which clients that are made from them have, and who may call them."""
    found = [(path, method, one) for path, all_ in paths.items() for method, one in all_.items()]
    names = {(path, method): _name_of(path, method, one["operationId"]) for path, method, one in found}
    often = Counter(names.values())
    for path, method, operation in found:
        name = names[path, method]
        tag = str(operation["tags"][0]).replace(" ", "_")
        operation["operationId"] = name if often[name] == 1 else f"{name}_of_{tag}"
        _drop_default(operation["responses"].get("200", {}).get("content", {}))
        operation["responses"].pop("422", None)
        operation["responses"].setdefault("default", _PROBLEM)
        if rules.rule_of(method.upper(), path)[0].right == "public":
            operation["security"] = []


def _name_of(path: str, method: str, identity: str) -> str:
    """Return the name of the function behind an operation, which FastAPI follows by its path and method."""
    return identity.removesuffix(f"{re.sub(r'[^a-zA-Z0-9_]', '_', path)}_{method}")


def _schemas_in(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(schema.get("components", {}).get("schemas", {}))


def _for_generators(schema: Any) -> None:
    """Put a schema into a form that generators of clients read as it is meant.

    They stop at `items: false`, which ends a tuple; take a property with a default for one that must be given; and an
    object that says nothing of its properties for one without any. Linters want items of every array. Descriptions,
    which are docstrings, lose their line breaks and examples.
    """
    if isinstance(schema, list):
        for one in schema:
            _for_generators(one)
    if not isinstance(schema, dict):
        return
    for one in schema.values():
        _for_generators(one)
    if isinstance(text := schema.get("description"), str):
        schema["description"] = prose_of(text)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        kinds = [*{msgspec.json.encode(one): one for one in schema.get("prefixItems", [])}.values()]
        schema["items"] = {"anyOf": kinds} if len(kinds) > 1 else kinds[0] if kinds else {}
    if schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys():
        schema["additionalProperties"] = True
    for one in properties.values() if isinstance(properties := schema.get("properties"), dict) else ():
        if isinstance(one, dict):
            one.pop("default", None)


def _drop_default(content: dict[str, Any]) -> None:
    """Remove the JSON that FastAPI adds to every answer from one that is declared to be something else."""
    if len(content) > 1 and not content.get("application/json", {}).get("schema"):
        content.pop("application/json", None)


def _bytes(media_type: str) -> dict[str, Any]:
    """Return a body of a media type: generators of clients leave out operations with a body that has no schema."""
    known: dict[str, dict[str, Any]] = {"application/json": {}, "text/event-stream": _EVENT}
    return {"schema": known.get(media_type, {"type": "string", "format": "binary"})}


def _answer(description: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": description, "content": _content(kind)}


def _content(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(kind)}}


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    _schemas.add(kind)
    return {"$ref": _REF.format(name=kind.__name__)}


_PROBLEM = {
    "description": "Problem",
    "content": {"application/problem+json": {"schema": _ref(ProblemDocument)}},
}


_RUNS = "/v1/runs"
_LINKS = {"self": "", "events": "/events", "cancel": "/cancel"}


def json_answer(value: Any, status: int = 200) -> Response:
    """`value` as JSON; structs as they are declared."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def accepted(run: RunSummary, later_files: Sequence[str] = ()) -> Response:
    """Return the 202 answer to a request that started a run."""
    here = f"{_RUNS}/{run.id}"
    links = {name: address(f"{here}{end}") for name, end in _LINKS.items()}
    body = Accepted(run.id, run.agent, run.state, links, list(later_files))
    answer = json_answer(body, 202)
    answer.headers.update(run_headers(run.id))
    return answer


def run_headers(run: str) -> dict[str, str]:
    """Return the headers that say where the run is, and its trace."""
    return {"Location": f"{_RUNS}/{run}", **trace_headers(run)}
