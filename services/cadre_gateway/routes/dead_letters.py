"""The HTTP routes of dead letters: list, show, deliver again, remove."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from cadre.adapters.nats.dead_letters import DeadLetter, NatsDeadLetters
from cadre.ports import Blobs, Journal
from cadre_gateway.reading.dead_letters import (
    DeadLetterDetail,
    DeadLetterDone,
    DeadLetterList,
    detail_of,
    hindrance,
    summary_of,
)
from cadre_gateway.requests.headers import MAX_SEQ
from cadre_gateway.requests.parameters import page_of
from cadre_gateway.requests.problems import Problem, answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer

Letter = Annotated[int, Path(ge=1, le=MAX_SEQ)]


def router(dead: NatsDeadLetters, journal: Journal, blobs: Blobs) -> APIRouter:
    """The routes of dead letters."""
    routes = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

    async def find(letter: int) -> DeadLetter:
        found = await dead.read(letter)
        if found is None:
            raise Problem(
                404,
                "unknown-dead-letter",
                f"there is no dead letter {letter} (any more): GET /v1/dead-letters lists them",
            )
        return found

    @routes.get("", summary="List dead letters, newest first", responses=openapi.answers(DeadLetterList))
    async def get_letters(
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Annotated[int | None, Query(ge=1, le=MAX_SEQ)] = None,
    ) -> Response:
        async with answer_deadline():
            found, last = page_of(await dead.newest(limit + 1, before), limit)
        return json_answer(
            DeadLetterList([summary_of(letter) for letter in found], last.id if last else None)
        )

    @routes.get("/{letter}", summary="One dead letter", responses=openapi.answers(DeadLetterDetail))
    async def get_letter(letter: Letter) -> Response:
        async with answer_deadline():
            return json_answer(await detail_of(blobs, await find(letter)))

    @routes.post("/{letter}/retry", summary="Deliver it again", responses=openapi.answers(DeadLetterDone))
    async def post_retry(letter: Letter) -> Response:
        """Publishes the message once more and removes the letter; 409 when nothing could come of it."""
        async with answer_deadline():
            found = await find(letter)
            if found.message is None:
                raise Problem(
                    409,
                    "message-gone",
                    f"the message of dead letter {letter} has been removed from its stream, most likely with"
                    " its run: drop the letter",
                )
            if why := await hindrance(journal, found.message):
                raise Problem(409, "retry-useless", f"{why}; nothing would come of it: drop the letter")
            await dead.retry(found, found.message)
        return json_answer(DeadLetterDone(letter, "retried", summary_of(found).run))

    @routes.delete(
        "/{letter}", summary="Remove it and its message", responses=openapi.answers(DeadLetterDone)
    )
    async def delete_letter(letter: Letter) -> Response:
        async with answer_deadline():
            found = await find(letter)
            await dead.drop(found)
        return json_answer(DeadLetterDone(letter, "dropped", summary_of(found).run))

    return routes
