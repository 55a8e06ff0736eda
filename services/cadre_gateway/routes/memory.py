"""The HTTP routes of what agents remember: search, list, show, forget, export, import."""

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from cadre.adapters.nats.memory import NatsMemory
from cadre.ports import Clock
from cadre.protocol.memory import (
    MAX_HITS,
    ForgetRequest,
    Found,
    ImportedMemories,
    ImportRequest,
    Listed,
    ListRequest,
    Receipt,
    Remembered,
    SearchRequest,
    Selection,
    ShowRequest,
)
from cadre.protocol.messages import MemoryScope
from cadre_gateway.access.principal import caller_of
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.requests import body
from cadre_gateway.requests.parameters import Moment, bounds
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer


def _selection(  # noqa: PLR0913 - query parameters
    request: Request,
    scope: MemoryScope | None = None,
    agent: str | None = None,
    team: str | None = None,
    user: str | None = None,
    session: str | None = None,
    run: str | None = None,
    all: bool = False,
) -> Selection:
    selected = Selection(scope=scope, agent=agent, team=team, user=user, session=session, run=run, all=all)
    caller_of(request).check_selection(selected)
    return selected


_SEARCH = openapi.operation(SearchRequest, {"200": ("Found", Found)})
_IMPORT = openapi.operation(ImportRequest, {"200": ("Imported", ImportedMemories)})
_EXPORT = openapi.streams("JSON lines", "application/x-ndjson", Remembered)

Selected = Annotated[Selection, Depends(_selection)]
Kinds = Annotated[list[str] | None, Query()]


class SearchBody(SearchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/memory/search."""


class ImportBody(ImportRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/memory/import."""


def router(reach: CallerReach, memory: NatsMemory, clock: Clock) -> APIRouter:
    """Return the routes of the memory service."""
    routes = APIRouter(prefix="/v1/memory", tags=["memory"])
    _reading(routes, reach, memory, clock)
    _importing(routes, memory)
    _forgetting(routes, reach, memory)
    return routes


def _reading(routes: APIRouter, reach: CallerReach, memory: NatsMemory, clock: Clock) -> None:
    @routes.post(
        "/search",
        summary="Find memories",
        openapi_extra=_SEARCH,
    )
    async def post_search(request: Request) -> Response:
        """Searches by meaning and by words. `selection` says whose memories: an empty one is refused."""
        asked: SearchRequest = body.parse(await body.read(request), SearchBody)
        caller_of(request).check_selection(asked.selection)
        found: Found = await memory.search(asked)
        return json_answer(found)

    @routes.get("", summary="List memories", responses=openapi.answers(Listed))
    async def get_memories(
        selection: Selected,
        kind: Kinds = None,
        since: Moment = None,
        until: Moment = None,
        limit: Annotated[int, Query(ge=1, le=MAX_HITS)] = 20,
        after: UUID | None = None,
    ) -> Response:
        """The memories that the parameters select: at least one of agent, team, user, session, run, or all=true.
        `since` and `until` say when they were remembered."""
        begin, end = bounds(since, until, clock.now())
        asked = ListRequest(
            selection=selection,
            kinds=kind or [],
            since=begin,
            until=end,
            limit=limit,
            after=str(after) if after is not None else None,
        )
        return json_answer(await memory.list(asked))

    @routes.get(
        "/export",
        summary="All memories of a selection",
        responses=_EXPORT,
    )
    async def get_export(
        selection: Selected,
        kind: Kinds = None,
    ) -> Response:
        """One JSON object per line, a chunk each; expired ones that are not removed yet among them."""
        asked = ListRequest(selection=selection, kinds=kind or [], limit=MAX_HITS)
        # The first page before the answer begins: what is wrong is a problem, and not an answer cut off.
        first = await memory.export(asked)
        return StreamingResponse(_lines(memory, asked, first), media_type="application/x-ndjson")

    @routes.get("/{memory_id}", summary="One memory, all its chunks", responses=openapi.answers(Listed))
    async def get_memory(memory_id: str, request: Request) -> Response:
        """All chunks in order; `next` is null, however many there are."""
        await reach.check(caller_of(request), "memory", memory_id)
        return json_answer(await _whole(memory, memory_id))


def _importing(routes: APIRouter, memory: NatsMemory) -> None:
    @routes.post("/import", summary="Keep memories of an export", openapi_extra=_IMPORT)
    async def post_import(request: Request) -> Response:
        """At most 50 lines of an export at once. Sent twice, they are kept once; they are embedded again."""
        asked: ImportRequest = body.parse(await body.read(request), ImportBody)
        return json_answer(await memory.import_all(asked))


def _forgetting(routes: APIRouter, reach: CallerReach, memory: NatsMemory) -> None:
    @routes.delete("/{memory_id}", summary="Forget one memory", responses=openapi.answers(Receipt))
    async def delete_memory(memory_id: str, request: Request) -> Response:
        """At once and for good; the receipt's counts are taken before and after."""
        await reach.check(caller_of(request), "memory", memory_id)
        return json_answer(await memory.forget(ForgetRequest(memory=memory_id, confirm=True)))

    @routes.delete("", summary="Forget all memories of a selection", responses=openapi.answers(Receipt))
    async def delete_memories(
        selection: Selected,
        confirm: bool = False,
    ) -> Response:
        """Without `confirm=true` nothing is removed, and the receipt says how much would be."""
        return json_answer(await memory.forget(ForgetRequest(selection=selection, confirm=confirm)))


async def _whole(memory: NatsMemory, memory_id: str) -> Listed:
    """Return all of a memory."""
    asked = ShowRequest(memory=memory_id)
    page = await memory.show(asked)
    chunks = [*page.memories]
    while page.next is not None:
        page = await memory.show(msgspec.structs.replace(asked, after=page.next))
        chunks += page.memories
    return Listed(memories=chunks, next=None)


async def _lines(memory: NatsMemory, asked: ListRequest, page: Listed) -> AsyncIterator[bytes]:
    while True:
        for one in page.memories:
            yield msgspec.json.encode(one) + b"\n"
        if page.next is None:
            return
        page = await memory.export(msgspec.structs.replace(asked, after=page.next))
