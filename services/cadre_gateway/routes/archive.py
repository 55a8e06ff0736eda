"""The HTTP routes that move or remove a run as a whole: erase, export, import."""

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
from cadre_gateway.steering.erase import Eraser, Gone
from cadre_gateway.transfer.export import RunExporter
from cadre_gateway.transfer.import_run import Arrived, RunImporter


def router(eraser: Eraser, exporter: RunExporter, importer: RunImporter) -> APIRouter:
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
