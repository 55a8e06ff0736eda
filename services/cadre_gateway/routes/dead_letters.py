"""Serve the HTTP routes of dead letters: list, show, deliver again, remove; say whether another delivery could help."""

import contextlib
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from msgspec import UNSET, UnsetType

from cadre.adapters.nats.dead_letters import DeadLetter, NatsDeadLetters
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.delivery.codec import decode
from cadre.engine.fold import fold
from cadre.errors import BlobMissing, TerminalError, UnreadableMessage
from cadre.journal.run import Phase, Run
from cadre.ports import Blobs, Journal
from cadre.protocol.messages import Head, Spilled
from cadre.protocol.topology import parent_of
from cadre_gateway.requests.parameters import MAX_SEQ, page_of
from cadre_gateway.requests.problems import Problem, answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer

Letter = Annotated[int, Path(ge=1, le=MAX_SEQ)]


def router(dead: NatsDeadLetters, journal: Journal, blobs: Blobs) -> APIRouter:
    """Return the routes of dead letters."""
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
        return json_answer(DeadLetterList([summary_of(letter) for letter in found], last.id if last else None))

    @routes.get("/{letter}", summary="One dead letter", responses=openapi.answers(DeadLetterDetail))
    async def get_letter(letter: Letter) -> Response:
        async with answer_deadline():
            return json_answer(await detail_of(blobs, await find(letter)))

    @routes.post("/{letter}/retry", summary="Deliver it again", responses=openapi.answers(DeadLetterDone))
    async def post_retry(letter: Letter) -> Response:
        """Publish the message once more and remove the letter; 409 when nothing could come of it."""
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

    @routes.delete("/{letter}", summary="Remove it and its message", responses=openapi.answers(DeadLetterDone))
    async def delete_letter(letter: Letter) -> Response:
        async with answer_deadline():
            found = await find(letter)
            await dead.drop(found)
        return json_answer(DeadLetterDone(letter, "dropped", summary_of(found).run))

    return routes


class DeadLetterSummary(msgspec.Struct, kw_only=True):
    """A message that was given up. Times are Unix seconds."""

    id: int
    at: float
    queue: str
    """`agent/NAME` or `tool/NAME`: whose it was; or `schedules`, `events`, `deliveries`."""
    reason: str
    deliveries: int
    gone: bool = False
    """The message itself has been removed: what follows is unknown then."""
    kind: str | None = None
    """Type of the record, or `unreadable`; `tick` of a schedule, `event` for triggers, `notice`."""
    tree: str | None = None
    run: str | None = None
    call: str | None = None
    sender: str | None = None
    size: int | None = None
    """Bytes."""


class DeadLetterDetail(DeadLetterSummary, kw_only=True):
    """A dead letter with its message."""

    subject: str | None = None
    payload: Any = None
    encoding: Literal["json", "text", "hex"] | UnsetType = UNSET
    """The form of `payload`: the JSON that it is, text, or hexadecimal digits."""


class DeadLetterList(msgspec.Struct):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetterSummary]
    next: int | None
    """`before` of the next page."""


class DeadLetterDone(msgspec.Struct):
    """The outcome for a dead letter."""

    id: int
    done: Literal["retried", "dropped"]
    run: str | None = None


def summary_of(letter: DeadLetter) -> DeadLetterSummary:
    """Return the letter as the list shows it."""
    kind, _, name = letter.consumer.partition("-")
    summary = DeadLetterSummary(
        id=letter.id,
        at=letter.at,
        queue=f"{kind}/{name}" if name else letter.consumer,
        reason=letter.reason,
        deliveries=letter.deliveries,
        gone=letter.message is None,
    )
    if letter.message is not None:
        summary.kind = _kind(letter.message.subject, letter.message.data)
        summary.tree, summary.run, summary.call = _address(letter.message.subject)
        summary.sender = letter.message.subject.split(".")[-3] if summary.run is not None else None
        summary.size = len(letter.message.data)
    return summary


async def detail_of(blobs: Blobs, letter: DeadLetter) -> DeadLetterDetail:
    """Return the letter with its message. Raises BusUnavailable."""
    summary = summary_of(letter)
    detail = DeadLetterDetail(**msgspec.structs.asdict(summary))
    if letter.message is not None:
        detail.subject = letter.message.subject
        detail.payload, detail.encoding = await _payload(blobs, letter.message.data)
    return detail


def _head(data: bytes) -> Head:
    try:
        return msgspec.json.decode(data, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Head()


def _kind(subject: str, data: bytes) -> str:
    _, kind, what, *_ = subject.split(".")
    if kind == "event":
        return "event"
    if kind == "automation":
        return {"due": "tick", "delivery": "notice"}.get(what, what)
    return _head(data).type or "unreadable"


def _address(subject: str) -> tuple[str | None, str | None, str | None]:
    """Tree, run and, for a tool's queue, call; None where it is about no run. The subject says so even where the
    message is unreadable."""
    tokens = subject.split(".")
    if tokens[1] in ("automation", "event"):
        return None, None, None
    tree, leaf = tokens[-2:]
    if tokens[1] == "call":
        return tree, parent_of(leaf) or leaf, leaf
    return tree, leaf, None


async def _payload(blobs: Blobs, data: bytes) -> tuple[Any, Literal["json", "text", "hex"]]:
    head = _head(data)
    if head.type == "spilled":
        # Without the blob the reference stands in its place; the letter's reason names it as well.
        with contextlib.suppress(BlobMissing, UnreadableMessage):
            spilled: Spilled = decode(data, Spilled)
            data = await blobs.get(spilled.ref)
    try:
        return msgspec.json.decode(data), "json"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # that is why it is here
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return data.hex(), "hex"


async def hindrance(journal: Journal, message: StoredMessage) -> str | None:
    """Return why the message could not take its run forward; None when it may. Raises BusUnavailable."""
    tree, run, call = _address(message.subject)
    if tree is None or run is None:
        return None
    state = await _state(journal, tree, run)
    if state is None:
        return None
    if state.phase is Phase.DONE:
        ended = state.result.state if state.result else "ended"
        return f"run {run} is over ({ended})"
    if call is not None:
        return None if state.phase is Phase.NEW else _answered(state, call)
    manager = parent_of(run)
    if state.phase is not Phase.NEW or manager is None:
        return None
    above = await _state(journal, tree, manager)
    return None if above is None else _answered(above, run)


async def _state(journal: Journal, tree: str, run: str) -> Run | None:
    """None when the journal cannot be read by this version."""
    try:
        stored = await journal.read(tree, run)
    except TerminalError:
        return None
    return fold((one.entry for one in stored), run, tree)


def _answered(state: Run, call: str) -> str | None:
    if any(one.id == call for one in state.open_calls()):
        return None
    return f"run {state.id} was told that call {call} failed, and went on without it"
