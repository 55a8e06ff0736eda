"""What an MCP server answered to a call, as the value that a tool of Cadre returns."""

from __future__ import annotations

import base64
import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cadre.tools.files import File

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents


def value_of(result: CallToolResult) -> Any:
    """Structured content where there is some, else the text; pictures, sound and resources beside it are files."""
    blocks = [_value(block) for block in result.content]
    if result.structured_content is None:
        texts = [value for value in blocks if isinstance(value, str)]
        return "\n".join(texts) if len(texts) == len(blocks) else one_or_all(blocks)
    # Its text is the same again, for clients that know nothing else.
    others = [value for value in blocks if not isinstance(value, str)]
    return {"result": result.structured_content, "content": others} if others else result.structured_content


def error_text(result: CallToolResult) -> str:
    """What the server says of a call that failed."""
    texts = [block.text for block in result.content if block.type == "text"]
    return "\n".join(texts) or "the server reports a failure and says nothing of it"


def one_or_all(values: list[Any]) -> Any:
    """The only value, or the list of them."""
    return values[0] if len(values) == 1 else values


def _value(block: ContentBlock) -> Any:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return File(base64.b64decode(block.data), media_type=block.mime_type)
        case "resource_link":
            about = {"uri": str(block.uri), "name": block.name, "description": block.description}
            return {key: text for key, text in about.items() if text}
    return resource_value(block.resource)


def resource_value(resource: TextResourceContents | BlobResourceContents) -> Any:
    """A text with its URI; anything else is a file."""
    if "text" in resource.model_fields_set:
        return {"uri": str(resource.uri), "text": getattr(resource, "text", "")}
    name = posixpath.basename(urlsplit(str(resource.uri)).path)
    return File(
        base64.b64decode(getattr(resource, "blob", "")), name=name, media_type=resource.mime_type or ""
    )
