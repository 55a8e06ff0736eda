"""Write what a run says to a remote agent as A2A's Message, and read A2A's Task as a `RemoteTask`."""

import base64
import binascii
from typing import Any

import msgspec

from cadre.adapters.a2a.client import RemoteRefused
from cadre.protocol.tagged import for_people
from cadre.tools.context import ToolContext
from cadre.tools.files import FILE_KEY, File

MOST_INLINE_BYTES = 32 * 1024
"""A larger answer is a file: a run decides by what its journal holds whole."""
_MOST_SAID_CHARS = 2_000


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = msgspec.UNSET
    filename: str = ""
    media_type: str = ""


class _Message(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Status(msgspec.Struct, frozen=True):
    state: str
    message: _Message = _Message()


class _Artifact(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    status: _Status
    context_id: str = ""
    artifacts: list[_Artifact] = []


class _Sent(msgspec.Struct, frozen=True):
    task: _Task | None = None
    message: _Message | None = None


def task_of(result: Any) -> dict[str, Any]:
    """The fields of a `RemoteTask`, from what a method has answered; a message in place of a task is the whole answer.

    Raises RemoteRefused for what is neither.
    """
    try:
        sent = msgspec.convert(result, _Sent)
        if sent.message is not None:
            return _found("completed", answer=_answer(sent.message.parts))
        task = sent.task or msgspec.convert(result, _Task)
    except msgspec.ValidationError as error:
        raise RemoteRefused(f"what the remote agent answers is no task of A2A: {error}") from error
    status = task.status
    state = status.state.removeprefix("TASK_STATE_").lower()
    said = "\n".join(part.text for part in status.message.parts if part.text is not None)
    found = _found(state, task=task.id, context=task.context_id, said=said[:_MOST_SAID_CHARS])
    if state == "completed":
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        return found | {"answer": _answer(parts or status.message.parts)}
    asked = [part.data for part in status.message.parts if part.data is not msgspec.UNSET]
    if state == "input_required" and asked and len(msgspec.json.encode(asked)) <= MOST_INLINE_BYTES:
        return found | {"asked": asked}
    return found


def _found(state: str, **fields: Any) -> dict[str, Any]:
    return {"state": state, **fields}


def _answer(parts: list[_Part]) -> Any:
    """The value of the only part, the text of all, or the list of their values."""
    values = [_value(part) for part in parts]
    if not values:
        return ""
    if all(isinstance(value, str) for value in values):
        values = ["\n".join(values)]
    found = [_inline(value, MOST_INLINE_BYTES // len(values)) for value in values]
    return found[0] if len(found) == 1 else found


def _value(part: _Part) -> Any:
    if part.text is not None:
        return part.text
    if part.raw is not None:
        try:
            return File(base64.b64decode(part.raw), name=part.filename, media_type=part.media_type)
        except binascii.Error as error:
            raise RemoteRefused(f"a file of the remote agent is not Base64: {error}") from error
    if part.url is not None:
        about = {"url": part.url, "name": part.filename, "media_type": part.media_type}
        return {key: value for key, value in about.items() if value}
    return None if part.data is msgspec.UNSET else part.data


def _inline(value: Any, most: int) -> Any:
    """The value, or a file of what is longer."""
    if isinstance(value, File):
        return value
    data = msgspec.json.encode(value)
    if len(data) <= most:
        return value
    if isinstance(value, str):
        return File(value.encode(), name="answer.txt", media_type="text/plain")
    return File(data, name="answer.json", media_type="application/json")


async def message_of(ctx: ToolContext, text: str, data: list[Any], images: list[str]) -> dict[str, Any]:
    """The message without its ids. Files are sent with their content, in `data` their names stand for them. Raises
    BlobMissing."""
    files: list[File] = []
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for value in data:
        told = for_people(without_files(value, files))
        parts.append({"data": told, "mediaType": "application/json"})
    for image in images:
        if image.startswith("blob:"):
            files.append(File.from_json(image))
        else:
            parts.append(_linked(image))
    for file in files:
        await ctx.fetch(file)
        about = {"mediaType": file.media_type} | ({"filename": file.name} if file.name else {})
        parts.append({"raw": base64.b64encode(file.data).decode(), **about})
    return {"role": "ROLE_USER", "parts": parts or [{"text": " "}]}


def without_files(value: Any, files: list[File]) -> Any:
    """The value with the name of each file in its place; the files themselves are added to `files`."""
    if isinstance(value, list):
        return [without_files(item, files) for item in value]
    if isinstance(value, dict) and value.keys() == {FILE_KEY}:
        files.append(File.from_json(value))
        return files[-1].name or files[-1].info.ref
    return (
        {key: without_files(item, files) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _linked(image: str) -> dict[str, Any]:
    if not image.startswith("data:"):
        return {"url": image, "mediaType": "image/*"}
    kind, _, content = image.removeprefix("data:").partition(";base64,")
    return {"raw": content, "mediaType": kind}
