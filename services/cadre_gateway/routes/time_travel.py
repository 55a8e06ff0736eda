"""Serve the HTTP routes that go back in a run's journal: the journal checked and decided again, what its model read
rendered again, a new run from a step."""

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from cadre.adapters.models.request_body import as_seen, chat_body, limits_of, sent_body
from cadre.adapters.nats.reading.history import NatsArchive
from cadre.api.runs import Accepted, ModelCallPlace, SentRequest
from cadre.delivery.hash_chain import Broken, ChainCheck
from cadre.engine.model_request import ModelRequest, model_at
from cadre.errors import BlobMissing, PromptError, TooLarge
from cadre.journal.entry import Entry
from cadre.journal.events import ModelAnswered, ModelCalled, RunAccepted
from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.ports import Blobs, Stored
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import is_within
from cadre.runtime.run_cache import read_prompts
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing.projection import ModelInput
from cadre_gateway.access.audit import note
from cadre_gateway.access.principal import caller_of
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyHeader, idempotency_key
from cadre_gateway.requests.parameters import MAX_SEQ
from cadre_gateway.requests.problems import Problem, answer_deadline, note_progress
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import accepted, json_answer
from cadre_gateway.starting.fork import ForkBody, Forker, ResumeBody
from cadre_gateway.steering.run_end import Eraser, Gone
from cadre_gateway.transfer.export import RunExporter
from cadre_gateway.transfer.import_run import Arrived, RunImporter


def router(lookup: RunLookup, archive: NatsArchive, forker: Forker, blobs: Blobs) -> APIRouter:
    """Return the routes of replay, verify and fork."""
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

    @routes.get("/{run}/replay", summary="Decide a run's journal again", responses=openapi.answers(ReplayAnswer))
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
        "/{run}/resume",
        summary="Go on where a run ended without an answer",
        status_code=202,
        openapi_extra=openapi.operation(ResumeBody, {"202": ("Accepted", Accepted)}),
    )
    async def post_resume(
        run: str,
        request: Request,
        key_header: IdempotencyHeader = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """202 with the id of the new root run; 409 while the other one goes on, 422 when it has its answer."""
        data = await body.read(request) or b"{}"
        wanted, caller = body.parse(data, ResumeBody), caller_of(request)
        key = idempotency_key(caller.owner, key_header, f"resume {run}", data)
        async with answer_deadline():
            forked = await forker.resume(caller, run, wanted, key, traceparent)
        note(request, run=forked.run.id)
        return accepted(forked.run, forked.later_files)

    return routes


def archive_router(eraser: Eraser, exporter: RunExporter, importer: RunImporter) -> APIRouter:
    """Return the routes of whole runs."""
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


_MAX_LISTED = 500

MAX_REPLAYED_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of journals that a gateway replays: all of them are in its memory then."""


class VerifyAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a verification; without broken links nothing of the journals was changed, lost or moved."""

    id: str
    runs: int
    entries: int
    broken: list[Broken]


async def verify(lookup: RunLookup, archive: NatsArchive, run: str, run_only: bool) -> VerifyAnswer:
    """Check the journals of the run and of all runs below it, or of the run alone. Raises a 404 problem,
    BusUnavailable."""
    async with answer_deadline():
        tree = (await lookup.find(run)).tree
    check = ChainCheck()
    async for one in archive.entries(tree):
        await asyncio.to_thread(check.take, one.data, lambda name: _covers(name, run, run_only))
    if not run_only:
        check.check_members()
    return VerifyAnswer(id=run, runs=check.runs, entries=check.entries, broken=check.broken)


class ReplayAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a replay; without divergences this version of Cadre continues the runs as they began."""

    id: str
    schema: int
    """The version that this gateway writes."""
    runs: int
    entries: int
    decided: int
    """Number of entries whose decision was made again."""
    divergences: list[Divergence]
    """The first 500."""
    undecided: list[Undecided]
    """Entries that do not tell what had arrived; the first 500."""
    omitted: int
    """Divergences that are not listed."""


async def replay(lookup: RunLookup, run: str, run_only: bool) -> ReplayAnswer:
    """Replay the decisions of the run and all runs below it, or of the run alone. Raises a 404 problem, a 413 problem
    for journals of more than MAX_REPLAYED_BYTES, a 503 problem, BusUnavailable."""
    async with answer_deadline():
        tree = (await lookup.find(run)).tree
    entries: list[tuple[str, Journaled]] = []
    try:
        async with lookup.pages_of_tree(tree, MAX_REPLAYED_BYTES) as pages:
            async for page in pages:
                entries += [(one.entry.run, Journaled(one.seq, one.entry)) for one in page]
            found = await asyncio.to_thread(redecide, _journals(entries, run, run_only))
    except TooLarge as error:
        advice = f"`cadre runs export {tree} -o FILE` and `cadre replay --file FILE` do it on your machine"
        raise Problem(413, "too-large", f"{error}: {advice}") from error
    return ReplayAnswer(
        id=run,
        schema=SCHEMA_VERSION,
        runs=found.runs,
        entries=found.entries,
        decided=found.decided,
        divergences=found.divergences[:_MAX_LISTED],
        undecided=found.undecided[:_MAX_LISTED],
        omitted=max(0, len(found.divergences) - _MAX_LISTED),
    )


def _journals(entries: list[tuple[str, Journaled]], run: str, run_only: bool) -> list[list[Journaled]]:
    """Return the entries by run: those of the run and of all runs below it, or of the run alone."""
    journals: dict[str, list[Journaled]] = {}
    for name, entry in entries:
        if _covers(name, run, run_only):
            journals.setdefault(name, []).append(entry)
    return list(journals.values())


def _covers(name: str, run: str, run_only: bool) -> bool:
    return name == run or (not run_only and is_within(name, run))


async def sent_request(
    lookup: RunLookup, blobs: Blobs, run: str, step: int, purpose: str | None, attempt: int | None
) -> SentRequest:
    """Return the model call of the step with that purpose and attempt, the last one of those that fit.

    Raises 404 problems: no such run, no such call, prompts that are gone. Raises BusUnavailable.
    """
    tree = (await lookup.find(run)).tree
    search: _Search | None = None
    async for page in lookup.history.lean_pages(tree, run=run):
        note_progress()
        if search is None:
            search = _Search(ModelInput(tree, run, await _prompts_of(page, blobs)), step, purpose, attempt)
        if await asyncio.to_thread(search.take, page):
            break
    if search is None or search.found is None:
        wanted = " ".join(str(one) for one in (purpose, attempt) if one is not None)
        raise Problem(
            404,
            "unknown-model-call",
            f"run {run} has asked its model nothing{wanted and f' for {wanted}'} in step {step}:"
            " GET /v1/runs/{run}/events has its model calls (model.called)",
        )
    return search.answer(run)


async def _prompts_of(page: Iterable[Stored], blobs: Blobs) -> Prompts | None:
    """Return the prompts that the run keeps; None if it keeps no prompts."""
    events = (event for one in page for event in one.entry.events)
    ref = next((event.prompts for event in events if isinstance(event, RunAccepted)), "")
    try:
        return await read_prompts(ref, blobs) if ref else None
    except (BlobMissing, PromptError) as error:
        raise _unrenderable(str(error)) from error


def _unrenderable(why: str) -> Problem:
    return Problem(404, "prompts-gone", f"what the model read cannot be rendered any more: {why}")


class _Search:
    """Follows a journal until the step is over; keeps the last call that fits, as it began."""

    def __init__(self, past: ModelInput, step: int, purpose: str | None, attempt: int | None) -> None:
        self._past = past
        self._step, self._purpose, self._attempt = step, purpose, attempt
        self._calls: list[ModelCallPlace] = []
        self._context: int | None = None
        self._model = self._endpoint = ""
        self.found: tuple[ModelCalled, float, ModelRequest, ModelSpec] | None = None

    def take(self, page: Iterable[Stored]) -> bool:
        """Return whether nothing further of the step can come."""
        return any(self._take(one.entry) for one in page)

    def _take(self, entry: Entry) -> bool:
        self._past.enter(entry)
        called: ModelCalled | None = None
        for event in entry.events:
            self._past.apply(event, entry)
            match event:
                case ModelAnswered():
                    # An endpoint's answers contain its name and how much it takes.
                    self._model = event.model or self._model
                    self._context = event.context or self._context
                    self._endpoint = event.endpoint or self._endpoint
                case ModelCalled():
                    called = event
                case _:
                    pass
        if called is not None and called.step <= self._step:
            self._note(called, entry.at)
        return called is not None and called.step > self._step

    def _note(self, called: ModelCalled, at: float) -> None:
        # Rendered call by call, as the agent does.
        request = self._past.request(called.purpose)
        if called.step != self._step:
            return
        place = ModelCallPlace(called.purpose, called.attempt)
        self._calls.append(place)
        if self._purpose not in (None, place.purpose) or self._attempt not in (None, place.attempt):
            return
        run = self._past.run
        if request is None or run is None or run.spec is None:
            raise _unrenderable("the journal does not say with which prompts the run began")
        self.found = (called, at, request, model_at(run.spec.model, called.fallback))

    def answer(self, run: str) -> SentRequest:
        """Return the request as it was posted."""
        assert self.found is not None
        called, at, request, spec = self.found
        name = spec.name or called.model or self._model
        learned = request.learned.get(self._endpoint)
        limits = limits_of(spec, spec.url, name, learned, self._context)
        # The endpoint of an agent whose file names none is known to the journal alone.
        limits.id = limits.id if spec.url else self._endpoint
        body = chat_body(spec, as_seen(request, spec), name, limits)
        return SentRequest(
            id=run,
            step=called.step,
            purpose=called.purpose,
            attempt=called.attempt,
            at=at,
            api=spec.api,
            body=sent_body(spec, body),
            calls=self._calls,
        )
