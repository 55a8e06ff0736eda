"""Schemas of bodies and answers for /openapi.json, taken from the structs that are read and written."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from cadre.protocol.memory import Found, Listed, Receipt, SearchRequest
from cadre.protocol.messages import Delta
from cadre.tools.workspace import FileEntry
from cadre_gateway.index.run_summary import RunSummary, State
from cadre_gateway.requests.body import CancelBody, RulingBody, Submission
from cadre_gateway.runs.approvals import Approval
from cadre_gateway.runs.dead_letters import DeadLetterDetail, DeadLetterDone, DeadLetterList
from cadre_gateway.runs.detail import RunDetail, RunResult
from cadre_gateway.runs.directory import LiveAgent, LiveSandbox, LiveTool
from cadre_gateway.runs.erase import Gone
from cadre_gateway.runs.event_stream import Shown
from cadre_gateway.runs.fork import ForkBody
from cadre_gateway.runs.held_calls import Ruled
from cadre_gateway.runs.replay import ReplayAnswer
from cadre_gateway.runs.traces import TraceTree
from cadre_gateway.transfer.import_run import Arrived

_REF = "#/components/schemas/{name}"


class RunList(msgspec.Struct):
    runs: list[RunSummary]
    next: str | None
    """`before` of the next page."""


class AgentList(msgspec.Struct):
    agents: list[LiveAgent]


class ToolList(msgspec.Struct):
    tools: list[LiveTool]


class SandboxList(msgspec.Struct):
    sandboxes: list[LiveSandbox]


class ApprovalList(msgspec.Struct):
    approvals: list[Approval]
    next: str | None
    """`before` of the next page."""


class Accepted(msgspec.Struct):
    id: str
    agent: str
    state: State
    links: dict[str, str]
    later_files: list[str] = []
    """Of a fork: paths of its workspace of which the version of the step cannot be told. They are as they are in the
    run that it comes from."""


class FileList(msgspec.Struct):
    """The files of a run's workspace, by path."""

    files: list[FileEntry]


class CancelAnswer(msgspec.Struct):
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


_SCHEMAS = (
    Submission,
    CancelBody,
    RunList,
    RunDetail,
    RunResult,
    AgentList,
    ToolList,
    SandboxList,
    Accepted,
    CancelAnswer,
    ApprovalList,
    Approval,
    RulingBody,
    Ruled,
    ProblemDocument,
    DeadLetterList,
    DeadLetterDetail,
    DeadLetterDone,
    ReplayAnswer,
    TraceTree,
    ForkBody,
    Gone,
    Arrived,
    FileEntry,
    FileList,
    Shown,
    Delta,
    SearchRequest,
    Found,
    Listed,
    Receipt,
)


def answers(kind: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    return {200: _answer("Found", kind), "default": _problem()}


def events() -> dict[int | str, dict[str, Any]]:
    stream = {"description": "Event stream; the data of an event is a `Shown`, of `delta` a `Delta`"}
    return {200: {**stream, "content": {"text/event-stream": {}}}, "default": _problem()}


def started_by(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Of a request with such a body, which starts a run."""
    return {
        "requestBody": {"required": True, "content": _content(kind)},
        "responses": {"202": _answer("Accepted", Accepted), "default": _problem()},
    }


def file() -> dict[int | str, dict[str, Any]]:
    found = {"description": "gzip of JSON lines", "content": {"application/gzip": {}}}
    return {200: found, "default": _problem()}


def searching() -> dict[str, Any]:
    """Of a search in what agents remember."""
    return {
        "requestBody": {"required": True, "content": _content(SearchRequest)},
        "responses": {"200": _answer("Found", Found), "default": _problem()},
    }


def lines(kind: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    """Of an answer that is one JSON object per line."""
    schema = {"$ref": _REF.format(name=kind.__name__)}
    found = {"description": "JSON lines", "content": {"application/x-ndjson": {"schema": schema}}}
    return {200: found, "default": _problem()}


def download() -> dict[int | str, dict[str, Any]]:
    found = {"description": "The bytes, as a download", "content": {"application/octet-stream": {}}}
    return {200: found, "default": _problem()}


def upload(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
        "responses": {"200": _answer("Written", kind), "default": _problem()},
    }


def importing() -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": {"application/gzip": {}}},
        "responses": {"201": _answer("Imported", Arrived), "default": _problem()},
    }


def submission() -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": _content(Submission)},
        "responses": {
            "202": _answer("Accepted", Accepted),
            "200": _answer("Ended within the time to wait", RunResult),
            "default": _problem(),
        },
    }


def cancel() -> dict[str, Any]:
    return {
        "requestBody": {"required": False, "content": _content(CancelBody)},
        "responses": {
            "202": _answer("Asked to end", CancelAnswer),
            "200": _answer("Had ended already", CancelAnswer),
            "default": _problem(),
        },
    }


def ruling() -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": _content(RulingBody)},
        "responses": {
            "200": _answer("It counts, or says what was decided before", Ruled),
            "202": _answer("Kept until the agent is back; it will count", Ruled),
            "default": _problem(),
        },
    }


def describe(app: FastAPI) -> None:
    """Adds the schemas to the application's document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, components = msgspec.json.schema_components(_SCHEMAS, ref_template=_REF)
            schema.setdefault("components", {}).setdefault("schemas", {}).update(components)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _answer(description: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": description, "content": _content(kind)}


def _problem() -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=ProblemDocument.__name__)}
    return {"description": "Problem", "content": {"application/problem+json": {"schema": schema}}}


def _content(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
