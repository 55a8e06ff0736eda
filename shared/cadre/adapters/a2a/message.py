"""What a run of Cadre says to a remote agent, as A2A's Message."""

import base64
from typing import Any

from cadre.protocol.tagged import for_people
from cadre.tools.context import ToolContext
from cadre.tools.files import FILE_KEY, File


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
