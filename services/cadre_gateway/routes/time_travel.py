"""The HTTP routes that go back in a run's journal: what its model read, its decisions made anew, a new run from one of
its steps."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.api.runs import Accepted, SentRequest
from cadre.ports import Blobs
from cadre_gateway.access.audit import note
from cadre_gateway.access.principal import caller_of
from cadre_gateway.reading.audit import ReplayAnswer, VerifyAnswer, replay, verify
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.reading.sent_request import sent_request
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import MAX_SEQ
from cadre_gateway.requests.idempotency import IdempotencyHeader, idempotency_key
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import accepted, json_answer
from cadre_gateway.starting.fork import ContinueBody, ForkBody, Forker
from cadre_gateway.steering.erase import Eraser, Gone
from cadre_gateway.transfer.export import RunExporter
from cadre_gateway.transfer.import_run import Arrived, RunImporter


def router(lookup: RunLookup, archive: NatsArchive, forker: Forker, blobs: Blobs) -> APIRouter:
    """The routes of replay, verify and fork."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.get(
        "/{run}/steps/{step}/request",
        summary="What an agent sent to its model",
        responses=openapi.answers(SentRequest),
    )
    async def get_request(
        run: str,
        step: Annotated[int, Path(ge=0, le=MAX_SEQ)],
        purpose: str | None = None,
        attempt: Annotated[int | None, Query(ge=1, le=MAX_SEQ)] = None,
    ) -> Response:
        """Rendered from the journal as the call began: messages, tools and options. Without `purpose` and `attempt` the
        last model call of the step; `calls` names the others."""
        async with answer_deadline():
            return json_answer(await sent_request(lookup, blobs, run, step, purpose, attempt))

    @routes.get(
        "/{run}/replay", summary="Decide a run's journal anew", responses=openapi.answers(ReplayAnswer)
    )
    async def get_replay(run: str, run_only: bool = False) -> Response:
        """Covers all runs below it too, unless `run_only`. Nothing is sent, and no run is changed."""
        return json_answer(await replay(lookup, run, run_only))

    @routes.get("/{run}/verify", summary="Check a run's hash chains", responses=openapi.answers(VerifyAnswer))
    async def get_verify(run: str, run_only: bool = False) -> Response:
        """Covers all runs below it too, unless `run_only`."""
        return json_answer(await verify(lookup, archive, run, run_only))

    @routes.post(
        "/{run}/fork",
        summary="Start a run from a step of another",
        status_code=202,
        openapi_extra=openapi.operation(ForkBody, {"202": ("Accepted", Accepted)}),
    )
    async def post_fork(
        run: str,
        request: Request,
        key_header: IdempotencyHeader = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """202 with the id of the new root run; 409 while the steps before are not finished."""
        data = await body.read(request)
        wanted = body.parse(data, ForkBody)
        caller = caller_of(request)
        key = idempotency_key(caller.owner, key_header, f"fork {run}", data)
        async with answer_deadline():
            forked = await forker.fork(caller, run, wanted, key, traceparent)
        note(request, run=forked.run.id, at=str(wanted.at))
        return accepted(forked.run, forked.later_files)

    @routes.post(
        "/{run}/continue",
        summary="Go on where a run ended without an answer",
        status_code=202,
        openapi_extra=openapi.operation(ContinueBody, {"202": ("Accepted", Accepted)}),
    )
    async def post_continue(
        run: str,
        request: Request,
        key_header: IdempotencyHeader = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """202 with the id of the new root run; 409 while the other one goes on, 422 when it has its answer."""
        data = await body.read(request) or b"{}"
        wanted, caller = body.parse(data, ContinueBody), caller_of(request)
        key = idempotency_key(caller.owner, key_header, f"continue {run}", data)
        async with answer_deadline():
            forked = await forker.go_on(caller, run, wanted, key, traceparent)
        note(request, run=forked.run.id)
        return accepted(forked.run, forked.later_files)

    return routes


def archive_router(eraser: Eraser, exporter: RunExporter, importer: RunImporter) -> APIRouter:
    """The routes of whole runs."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.delete("/{run}", summary="Erase a run with all runs below it", responses=openapi.answers(Gone))
    async def delete_run(run: str, force: bool = False) -> Response:
        """Everywhere and at once: journals, messages, blobs. Root runs only; `force=true` cancels a run that has
        not ended and waits for its end first."""
        return json_answer(await eraser.erase(run, force))

    @routes.get(
        "/{run}/export",
        summary="A run as a file",
        responses=openapi.streams("gzip of JSON lines", "application/gzip"),
    )
    async def get_export(run: str) -> Response:
        """gzip, one JSON object per line: the journals of the run and of all runs below it, and their blobs. Root
        runs that have ended only. A file without its last line was cut off."""
        pieces = await exporter.export(run)
        name = f'attachment; filename="{run}.cadre"'
        return StreamingResponse(pieces, media_type="application/gzip", headers={"Content-Disposition": name})

    @routes.post(
        "/import",
        summary="Bring a run from a file",
        status_code=201,
        openapi_extra=openapi.operation("application/gzip", {"201": ("Imported", Arrived)}),
    )
    async def post_import(request: Request, unverified: bool = False) -> Response:
        """The body is what an export answered. An import that was cut short is completed by the same file. A file whose
        hash chains do not hold is refused unless `unverified=true`."""
        arrived = await importer.receive(request.stream(), unverified=unverified)
        answer = json_answer(arrived, 201)
        answer.headers["Location"] = f"/v1/runs/{arrived.id}"
        return answer

    return routes
