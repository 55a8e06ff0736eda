"""Serve /v1/files: files that a client uploads once and names by their ids in its requests. The bytes are in the blob
store, and a definition in NATS says whose they are."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.errors import Fenced
from cadre.ports import Blobs, Clock
from cadre.protocol.files import decode_data_url
from cadre.protocol.kept import KeptFile
from cadre.tools.files import media_type_of
from cadre_gateway.doors.answers import json_answer
from cadre_gateway.doors.messages import add_file
from cadre_gateway.doors.openai.turn_request import FILE_ID, Holder, Turn, holder_of
from cadre_gateway.requests import body
from cadre_gateway.requests.body import FORM_BYTES, FormField, download, fields_of
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")

_MAX_FILES = 10_000
"""The most files of one page."""

_MAX_NAME_CHARS = 200
_LEAST_SECONDS, _MOST_SECONDS = 3_600, 2_592_000
_PLACE = re.compile(r"file-[0-9a-f]{32}")

Json = dict[str, Any]


@dataclass(frozen=True)
class KeptFiles:
    """Keeps files. Every method raises Problem, RetryableError."""

    records: NatsDefinitions[KeptFile]
    blobs: Blobs
    clock: Clock
    max_bytes: int

    async def keep(
        self,
        holder: Holder,
        data: bytes,
        name: str,
        media_type: str = "",
        purpose: str = "user_data",
        seconds: int | None = None,
    ) -> KeptFile:
        """Store the bytes, for as many `seconds` where they are given, and return the record. Raise a 413 problem."""
        if len(data) > self.max_bytes:
            raise body.too_large_file(self.max_bytes)
        now = self.clock.now()
        ref = await self.blobs.put(data)
        record = KeptFile(
            id=f"file-{int(now * 1000):012x}{secrets.token_hex(10)}",
            at=now,
            owner=holder.owner,
            name=name[-_MAX_NAME_CHARS:] or "file",
            media_type=media_type_of(data, name, media_type),
            size=len(data),
            purpose=purpose,
            ref=ref,
            expires_at=now + seconds if seconds is not None else None,
        )
        await self.records.write(record.id, record, 0)
        # From here on the content is spared; the removal of a run may have taken it a moment before.
        await self.blobs.put(data)
        return record

    async def find(self, holder: Holder, named: str) -> KeptFile:
        """Return the file. Raise a 404 problem if there is no such file, or it is another person's."""
        return (await self._found(holder, named))[0]

    async def drop(self, holder: Holder, named: str) -> None:
        """Delete the file. A janitor removes its bytes later, unless a run has them too. Raise a 404 problem."""
        while True:
            record, fence = await self._found(holder, named)
            try:
                await self.records.write(named, msgspec.structs.replace(record, expires_at=self.clock.now()), fence)
            except Fenced:
                continue
            return

    async def all(self, holder: Holder) -> list[KeptFile]:
        """Return the files that the holder reaches, the oldest first."""
        now = self.clock.now()
        found = [one for one in await self.records.all() if isinstance(one, KeptFile)]
        return [one for one in found if holder.reaches(one.owner) and not one.is_gone(now)]

    async def bring(self, holder: Holder, turn: Turn) -> Turn:
        """Return the turn with the content of files in the place of their ids. Raise a 404 problem for an unknown id, a
        422 problem for an image that is no picture."""
        history = turn.history
        images, files = [*turn.images, *history.images], {**history.files, **turn.files}
        ids = {ref.removeprefix(FILE_ID) for ref in (*images, *files.values()) if ref.startswith(FILE_ID)}
        if not ids:
            return turn
        found = {FILE_ID + one: await self.find(holder, one) for one in ids}
        if wrong := [found[ref].id for ref in images if ref in found and not _is_picture(found[ref])]:
            raise invalid(f"file {wrong[0]} is no picture: name it as an input_file", field="file_id")
        history.bring({ref: (one.name, one.ref) for ref, one in found.items()})
        own: dict[str, str] = {}
        for name, ref in turn.files.items():
            file = found.get(ref)
            add_file(own, file.name if file and ref == name else name, file.ref if file else ref)
        images = [found[ref].ref if ref in found else ref for ref in turn.images]
        return msgspec.structs.replace(turn, images=images, files=own)

    async def keep_content(self, holder: Holder, data_url: str, name: str) -> KeptFile:
        """Keep what a `data:` URL holds. Raise a 422 problem for another text."""
        try:
            content = decode_data_url(data_url)
        except ValueError as error:
            raise invalid(f"{name} is not base64: {error}") from error
        if content is None:
            raise invalid(f"{name}: send a `data:…;base64,…` URL, or the id of a file")
        return await self.keep(holder, content.data, name, content.media_type)

    async def _found(self, holder: Holder, named: str) -> tuple[KeptFile, int]:
        record, fence = await self.records.read(named) if _PLACE.fullmatch(named) else (None, 0)
        if record is None or record.is_gone(self.clock.now()) or not holder.reaches(record.owner):
            raise Problem(404, "unknown-file", f"there is no file {named!r} (any more)", field="file_id")
        return record, fence


def _is_picture(file: KeptFile) -> bool:
    return file.media_type.startswith("image/")


def add_routes(routes: APIRouter, files: KeptFiles) -> None:
    """Add the routes of files."""

    @routes.post("/files", summary="Upload a file")
    async def post_file(request: Request) -> Response:
        kind = request.headers.get("content-type", "")
        data = await body.read(request, files.max_bytes, form_bytes=FORM_BYTES)
        form = fields_of(data, kind)
        file, purpose = form.get("file"), _purpose(form)
        if file is None or file.file_name is None:
            raise invalid("the form has no file: send it as the field `file`", field="file")
        name = file.file_name.replace("\\", "/").rpartition("/")[2]
        async with answer_deadline():
            record = await files.keep(holder_of(request), file.data, name, file.media_type, purpose, _seconds(form))
        return json_answer(_shown(record))

    @routes.get("/files", summary="The files of the caller")
    async def get_files(
        request: Request,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=_MAX_FILES)] = _MAX_FILES,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Response:
        if after is not None and not _PLACE.fullmatch(after):
            raise invalid(f"after: {after!r} is the id of no file", field="after")
        async with answer_deadline():
            found = await files.all(holder_of(request))
        found = [one for one in found if purpose in (None, one.purpose)]
        # Ids grow with time: the place of a file that was deleted since is known as well.
        if order == "desc":
            found = [one for one in reversed(found) if after is None or one.id < after]
        else:
            found = [one for one in found if after is None or one.id > after]
        page = found[:limit]
        ends = {"first_id": page[0].id if page else None, "last_id": page[-1].id if page else None}
        listed = [_shown(one) for one in page]
        return json_answer({"object": "list", "data": listed, **ends, "has_more": len(found) > limit})

    @routes.get("/files/{file}", summary="One file")
    async def get_file(file: str, request: Request) -> Response:
        async with answer_deadline():
            return json_answer(_shown(await files.find(holder_of(request), file)))

    @routes.get("/files/{file}/content", summary="The bytes of a file")
    async def get_content(file: str, request: Request) -> Response:
        async with answer_deadline():
            record = await files.find(holder_of(request), file)
            data = await files.blobs.get(record.ref)
        return download(data, record.name, record.media_type)

    @routes.delete("/files/{file}", summary="Delete a file")
    async def delete_file(file: str, request: Request) -> Response:
        async with answer_deadline():
            await files.drop(holder_of(request), file)
        return json_answer({"id": file, "object": "file", "deleted": True})


def _purpose(form: dict[str, FormField]) -> str:
    purpose = form["purpose"].text if "purpose" in form else ""
    if purpose not in PURPOSES:
        raise invalid(f"purpose: {purpose!r} is none of {', '.join(PURPOSES)}", field="purpose")
    return purpose


def _seconds(form: dict[str, FormField]) -> int | None:
    """Return for how many seconds the file is to be kept; None for ever."""
    if not any(name.startswith("expires_after") for name in form):
        return None
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    given = seconds.text if seconds is not None else ""
    if (
        anchor is None
        or anchor.text != "created_at"
        or not given.isdecimal()
        or not _LEAST_SECONDS <= int(given) <= _MOST_SECONDS
    ):
        raise invalid(
            f"expires_after takes the anchor created_at and {_LEAST_SECONDS} to {_MOST_SECONDS} seconds",
            field="expires_after",
        )
    return int(given)


def _shown(record: KeptFile) -> Json:
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.size,
        "created_at": int(record.at),
        "expires_at": int(record.expires_at) if record.expires_at is not None else None,
        "filename": record.name,
        "purpose": record.purpose,
        "status": "processed",
        "status_details": None,
    }
