"""Serve /v1/conversations: what is said in the runs of a session, as a list of items that a client reads and changes.

A definition in NATS names the runs of a conversation, in their order, and holds the items that clients add themselves.
All other items follow from the journals of the runs, so they last as long as those.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.errors import Fenced
from cadre.protocol.kept import ConversationPart, KeptConversation
from cadre_gateway.access.principal import Principal, caller_of
from cadre_gateway.doors.answers import json_answer
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai.kept_files import KeptFiles
from cadre_gateway.doors.openai.response_object import items_of_run, page_of, read_items
from cadre_gateway.doors.openai.turn_request import Holder, Turn, holder_of
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.sender import RunService
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid

Json = dict[str, Any]

_PLACE = re.compile(r"conv_[0-9a-f]{32}")

_MAX_ITEMS = 20
"""The most items that are added at once."""

_MAX_BYTES = 512 * 1024
"""The most that the items which clients have added to one conversation may have."""

_BEGIN_SECONDS = 60.0
"""Seconds after which a run that was about to begin is not waited for."""

_MAX_PARALLEL_READS = 8
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}

Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]
Items = Annotated[list[Json], msgspec.Meta(max_length=_MAX_ITEMS)]


class ConversationBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/conversations."""

    items: Items | None = None
    metadata: Metadata | None = None


class MetadataBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/conversations/{conversation}."""

    metadata: Metadata | None


class ItemsBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/conversations/{conversation}/items."""

    items: Items


def is_kept(name: str) -> bool:
    """Return whether the name of a conversation is an id that `POST /v1/conversations` has given out; any other names
    a session."""
    return _PLACE.fullmatch(name) is not None


class ListedItem(NamedTuple):
    """A place in a conversation."""

    item: Json
    is_removed: bool


@dataclass(frozen=True)
class KeptConversations:
    """Keeps conversations. Every method raises Problem, RetryableError."""

    records: NatsDefinitions[KeptConversation]
    files: KeptFiles
    answers: Answers
    runs: RunService

    async def begin(self, holder: Holder, wanted: ConversationBody) -> KeptConversation:
        """Make a conversation with these items."""
        now = self.runs.clock.now()
        items = await self._checked(holder, wanted.items or [])
        record = KeptConversation(
            id=f"conv_{int(now * 1000):012x}{secrets.token_hex(10)}",
            at=now,
            owner=holder.owner,
            metadata=wanted.metadata or {},
            parts=[ConversationPart(item=item) for item in items],
        )
        await self.records.write(record.id, _bounded(record), 0)
        return record

    async def find(self, holder: Holder, named: str) -> tuple[KeptConversation, int]:
        """Return the conversation and its fence. Raise a 404 problem if there is none of this id, or it is another
        person's."""
        record, fence = await self.records.read(named) if is_kept(named) else (None, 0)
        if record is None or not holder.reaches(record.owner):
            raise Problem(404, "unknown-conversation", f"there is no conversation {named!r} (any more)")
        return record, fence

    async def change(self, holder: Holder, named: str, **fields: Any) -> KeptConversation:
        """Replace fields of the record."""
        while True:
            record, fence = await self.find(holder, named)
            changed = msgspec.structs.replace(record, **fields)
            try:
                await self.records.write(named, changed, fence)
            except Fenced:
                continue
            return changed

    async def add(self, holder: Holder, named: str, items: Sequence[Json]) -> list[Json]:
        """Add items at the end; return them as they are listed."""
        await self.find(holder, named)
        added = await self._checked(holder, items)
        while True:
            record, fence = await self.find(holder, named)
            parts = [*record.parts, *(ConversationPart(item=item) for item in added)]
            try:
                await self.records.write(named, _bounded(msgspec.structs.replace(record, parts=parts)), fence)
            except Fenced:
                continue
            return added

    async def remove(self, holder: Holder, caller: Principal, named: str, item: str) -> KeptConversation:
        """Leave an item out from now on: the next run does not read it either. Raise a 404 problem."""
        while True:
            record, fence = await self.find(holder, named)
            _item_of(await self.items(caller, record), item)
            changed = msgspec.structs.replace(record, removed=[*record.removed, item], changed=True)
            try:
                await self.records.write(named, changed, fence)
            except Fenced:
                continue
            return changed

    async def items(self, caller: Principal, record: KeptConversation) -> list[ListedItem]:
        """Return all items in their order, those of runs that are gone or that the caller does not reach left out."""
        slots = asyncio.Semaphore(_MAX_PARALLEL_READS)

        async def of(part: ConversationPart) -> list[Json]:
            if not part.run:
                return [part.item]
            async with slots:
                if not await self.runs.reach.has(caller, "tree", part.run):
                    return []
                try:
                    progress = await self.answers.so_far(Place(part.run))
                except Problem as problem:
                    if problem.code not in ("unknown-run", "run-erased"):
                        raise
                    return []
            task = progress.task or await self.runs.history.task(part.run, part.run)
            return items_of_run(progress, task) if task is not None else []

        found = [item for items in await asyncio.gather(*map(of, record.parts)) for item in items]
        return [ListedItem(item, item["id"] in record.removed) for item in found]

    async def turn_in(self, holder: Holder, turn: Turn, named: str, extra: Sequence[Json]) -> Turn:
        """Return the turn as one of the conversation, `extra` being the items that it brings besides the message. It
        goes on with the memory of the last run where that is the same agent's and nothing was changed since; else it is
        given all that was said."""
        record, _ = await self.find(holder, named)
        turn = msgspec.structs.replace(turn, conversation=named, extra=await self._checked(holder, extra))
        last = next((at for at in reversed(range(len(record.parts))) if record.parts[at].run), -1)
        if last < 0 or not await self._is_last(record, record.parts[last].run, turn):
            items = [one.item for one in await self.items(turn.caller, record) if not one.is_removed]
            is_afresh = last >= 0
        else:
            items = [part.item for part in record.parts[last + 1 :] if part.item["id"] not in record.removed]
            is_afresh = False
        read = read_items([await self._readable(holder, item) for item in items])
        read.history.extend(turn.history)
        rules = [*read.rules, turn.instructions]
        return msgspec.structs.replace(
            turn,
            history=read.history,
            instructions="\n\n".join(rule for rule in rules if rule),
            afresh=is_afresh,
        )

    async def _readable(self, holder: Holder, item: Json) -> Json:
        """Return the item with a note in the place of each file that was deleted since."""
        content = item.get("content")
        if not isinstance(content, list):
            return item
        parts = []
        for part in content:
            try:
                if isinstance(named := part.get("file_id"), str):
                    await self.files.find(holder, named)
            except Problem as problem:
                if problem.code != "unknown-file":
                    raise
                part = {"type": "input_text", "text": f"(The file {named} was deleted.)"}
            parts.append(part)
        return item | {"content": parts}

    async def _is_last(self, record: KeptConversation, run: str, turn: Turn) -> bool:
        """Return whether the session of the turn's agent goes on from this run with all that was said."""
        if record.changed:
            return False
        recorded, _ = await self.runs.turns.read(turn.agent, record.id, turn.user)
        return recorded is not None and recorded.run == run

    async def note(self, turn: Turn, run: str) -> None:
        """Take down that a run of the turn is about to begin in its conversation. One that was noted a while ago and
        never began is forgotten. Raise a 404 problem if the conversation was deleted."""
        while True:
            record, fence = await self.records.read(turn.conversation)
            if record is None:
                raise Problem(404, "unknown-conversation", f"conversation {turn.conversation!r} was deleted")
            if any(part.run == run for part in record.parts):
                return
            parts = record.parts
            if parts and await self._never_began(parts[-1]):
                parts = parts[:-1]
            parts = [*parts, *(ConversationPart(item=item) for item in turn.extra)]
            parts.append(ConversationPart(run=run, at=self.runs.clock.now()))
            changed = msgspec.structs.replace(record, parts=parts, changed=False)
            try:
                await self.records.write(record.id, _bounded(changed), fence)
            except Fenced:
                continue
            return

    async def _never_began(self, part: ConversationPart) -> bool:
        if not part.run or self.runs.clock.now() - part.at < _BEGIN_SECONDS:
            return False
        history = self.runs.history
        return not (await history.task(part.run, part.run) or await history.has_entries(part.run, part.run))

    async def _checked(self, holder: Holder, items: Sequence[Json]) -> list[Json]:
        """Return the items as they are listed: each with its id, and bytes in them as files. Raise a 404 or 422 problem
        that names what cannot be used."""
        read_items(items)
        found = []
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "item_reference":
                raise invalid("a conversation holds whole items: send the item itself", field=f"items[{at}]")
            own = {"id": f"{_PREFIXES.get(kind, 'item')}_{secrets.token_hex(16)}", "type": kind}
            own["status"] = "completed"
            given = {name: value for name, value in item.items() if value is not None}
            if "content" in given and kind == "message":
                given["content"] = await self._content(holder, given["content"], given.get("role"))
            found.append(own | given)
        return found

    async def _content(self, holder: Holder, content: Any, role: Any) -> list[Json]:
        text = {"type": "output_text", "annotations": [], "logprobs": []}
        text = text if role == "assistant" else {"type": "input_text"}
        if isinstance(content, str):
            return [text | {"text": content}]
        return [await self._part(holder, part) for part in content]

    async def _part(self, holder: Holder, part: Json) -> Json:
        """Return the part with a kept file in the place of its bytes."""
        if isinstance(named := part.get("file_id"), str):
            await self.files.find(holder, named)
        for field in ("image_url", "file_data", "file_url"):
            data = part.get(field)
            if not isinstance(data, str) or (field != "file_data" and not data.startswith("data:")):
                continue
            data = data if data.startswith("data:") else f"data:;base64,{data}"
            name = str(part.get("filename") or field.partition("_")[0])
            kept = await self.files.keep_content(holder, data, name)
            rest = {key: value for key, value in part.items() if key != field}
            return rest | {"file_id": kept.id}
        return part


def _bounded(record: KeptConversation) -> KeptConversation:
    """Return the record. Raise a 413 problem for one that is too large."""
    if (size := len(msgspec.json.encode(record))) > _MAX_BYTES:
        raise Problem(
            413,
            "too-large",
            f"the items that were added to conversation {record.id} have {size} bytes, over the limit of {_MAX_BYTES}:"
            " upload what is large with POST /v1/files, and name it by its file_id",
        )
    return record


def _item_of(items: Sequence[ListedItem], named: str) -> Json:
    found = next((one.item for one in items if one.item["id"] == named and not one.is_removed), None)
    if found is None:
        raise Problem(404, "unknown-item", f"the conversation has no item {named!r} (any more)")
    return found


def _shown(record: KeptConversation) -> Json:
    about = {"id": record.id, "object": "conversation", "created_at": int(record.at)}
    return about | {"metadata": record.metadata}


def add_routes(routes: APIRouter, kept: KeptConversations) -> None:
    """Add the routes of conversations."""

    @routes.post("/conversations", summary="Begin a conversation")
    async def post_conversation(request: Request) -> Response:
        data = await body.read(request)
        wanted = body.parse(data, ConversationBody) if data.strip() else ConversationBody()
        async with answer_deadline():
            return json_answer(_shown(await kept.begin(holder_of(request), wanted)))

    @routes.get("/conversations/{conversation}", summary="One conversation")
    async def get_conversation(conversation: str, request: Request) -> Response:
        async with answer_deadline():
            record, _ = await kept.find(holder_of(request), conversation)
        return json_answer(_shown(record))

    @routes.post("/conversations/{conversation}", summary="Replace the metadata of a conversation")
    async def post_metadata(conversation: str, request: Request) -> Response:
        wanted = body.parse(await body.read(request), MetadataBody)
        async with answer_deadline():
            changed = await kept.change(holder_of(request), conversation, metadata=wanted.metadata or {})
        return json_answer(_shown(changed))

    @routes.delete("/conversations/{conversation}", summary="Delete a conversation, not its runs")
    async def delete_conversation(conversation: str, request: Request) -> Response:
        async with answer_deadline():
            await kept.find(holder_of(request), conversation)
            await kept.records.remove(conversation)
        return json_answer({"id": conversation, "object": "conversation.deleted", "deleted": True})

    _add_item_routes(routes, kept)


def _add_item_routes(routes: APIRouter, kept: KeptConversations) -> None:
    async def listed(conversation: str, request: Request) -> list[ListedItem]:
        record, _ = await kept.find(holder_of(request), conversation)
        return await kept.items(caller_of(request), record)

    @routes.get("/conversations/{conversation}/items", summary="What was said in a conversation")
    async def get_items(  # noqa: PLR0913 - as the protocol names them
        conversation: str,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
        include: Annotated[list[str] | None, Query()] = None,
        includes: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        items = await listed(conversation, request)
        removed = {one.item["id"] for one in items if one.is_removed}
        return json_answer(page_of([one.item for one in items], limit, order, after, removed))

    @routes.post("/conversations/{conversation}/items", summary="Add items to a conversation")
    async def post_items(
        conversation: str,
        request: Request,
        include: Annotated[list[str] | None, Query()] = None,
        includes: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        wanted = body.parse(await body.read(request), ItemsBody)
        async with answer_deadline():
            added = await kept.add(holder_of(request), conversation, wanted.items)
        return json_answer(page_of(added, _MAX_ITEMS, "asc"))

    @routes.get("/conversations/{conversation}/items/{item}", summary="One item of a conversation")
    async def get_item(
        conversation: str,
        item: str,
        request: Request,
        include: Annotated[list[str] | None, Query()] = None,
        includes: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        return json_answer(_item_of(await listed(conversation, request), item))

    @routes.delete("/conversations/{conversation}/items/{item}", summary="Leave an item out")
    async def delete_item(conversation: str, item: str, request: Request) -> Response:
        changed = await kept.remove(holder_of(request), caller_of(request), conversation, item)
        return json_answer(_shown(changed))
