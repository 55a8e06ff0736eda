"""Schemas of bodies and answers for /openapi.json, taken from the structs that are read and written."""

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
from cadre.tools.workspace import FileEntry
from cadre.views.rows import RowsChanged
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.streaming.event_stream import Shown

_REF = "#/components/schemas/{name}"

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


def answers(kind: type[msgspec.Struct], status: int = 200) -> Responses:
    """Return a route that answers with this status and such a struct."""
    return {status: _answer("Found" if status == HTTPStatus.OK else "Begun", kind), "default": _PROBLEM}


def streams(description: str, media_type: str, kind: type[msgspec.Struct] | None = None) -> Responses:
    """Return a route that answers 200 with a stream; with `kind` each line of it is such a struct."""
    schema = {} if kind is None else {"schema": _ref(kind)}
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
    content = {body: {}} if isinstance(body, str) else _content(body)
    responses = {status: _answer(description, kind) for status, (description, kind) in answers.items()}
    if streams:
        responses["200"]["content"] |= {streams: {}}
    return {
        "requestBody": {"required": required, "content": content},
        "responses": {**responses, "default": _PROBLEM},
    }


def describe(app: FastAPI) -> None:
    """Add the schemas to the application's document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            close()  # the schemas of a run hold steps, and each kind has its part in them
            _, components = msgspec.json.schema_components(_schemas, ref_template=_REF)
            for path in schema["paths"].values():
                for operation in path.values():
                    _drop_default(operation["responses"].get("200", {}).get("content", {}))
                    # FastAPI's own form of 422, which is answered nowhere: every error is a problem.
                    operation["responses"].pop("422", None)
                    operation["responses"].setdefault("default", _PROBLEM)
            schema.setdefault("components", {}).setdefault("schemas", {}).update(components)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _drop_default(content: dict[str, Any]) -> None:
    """Remove the JSON that FastAPI adds to every answer from one that is declared to be something else."""
    if len(content) > 1 and not content.get("application/json", {}).get("schema"):
        content.pop("application/json", None)


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


def json_answer(value: Any, status: int = 200) -> Response:
    """`value` as JSON; structs as they are declared."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def accepted(run: RunSummary, later_files: Sequence[str] = ()) -> Response:
    """Return the 202 answer to a request that started a run."""
    here = f"{_RUNS}/{run.id}"
    links = {"self": here, "events": f"{here}/events", "cancel": f"{here}/cancel"}
    body = Accepted(run.id, run.agent, run.state, links, list(later_files))
    answer = json_answer(body, 202)
    answer.headers.update(run_headers(run.id))
    return answer


def run_headers(run: str) -> dict[str, str]:
    """Return the headers that say where the run is, and its trace."""
    return {"Location": f"{_RUNS}/{run}", **trace_headers(run)}
