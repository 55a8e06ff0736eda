"""Puts the bytes of stored images into messages, for a model cannot read our object store."""

import base64
from typing import Any

from cadre.errors import BlobMissing, ModelRefused
from cadre.ports import Blobs


async def with_images(messages: list[dict[str, Any]], blobs: Blobs) -> list[dict[str, Any]]:
    """The messages with each `blob:` image as a `data:` URL. Raises ModelRefused."""
    return [await _with_images(message, blobs) for message in messages]


async def _with_images(message: dict[str, Any], blobs: Blobs) -> dict[str, Any]:
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    return {**message, "content": [await _resolved(part, blobs) for part in parts]}


async def _resolved(part: Any, blobs: Blobs) -> Any:
    image = part.get("image_url") if isinstance(part, dict) and part.get("type") == "image_url" else None
    if not isinstance(image, dict) or not str(image.get("url", "")).startswith("blob:"):
        return part
    try:
        data = await blobs.get(image["url"])
    except BlobMissing as error:
        raise ModelRefused(f"an image of the conversation is gone: {error}") from error
    kind = image_type(data)
    if kind is None:
        raise ModelRefused(f"{image['url']} is no image that a model can read: use PNG, JPEG, GIF or WebP")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return {**part, "image_url": {**image, "url": url}}


def image_type(data: bytes) -> str | None:
    """The MIME type that the first bytes of an image tell."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None
