"""What AG-UI's clients send: the messages of a thread, and answers to what waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.requests.problems import invalid

_MAX_ID_CHARS = 255

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]


class Resume(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: Id
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ThreadMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A message of the thread; what else it has is the client's own business."""

    role: str
    content: Any = None
    name: str | None = None
    tool_call_id: str = ""
    tool_calls: list[dict[str, Any]] | None = None


class RunInput(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """AG-UI's RunAgentInput, as far as an agent has a use for it."""

    thread_id: Id
    run_id: Id
    messages: list[ThreadMessage] = []
    tools: list[dict[str, Any]] | None = None
    context: list[dict[str, Any]] | None = None
    state: Any = None
    resume: list[Resume] | None = None


def content_of(message: ThreadMessage, where: str) -> MessageContent:
    """The texts, images and documents of a message. Raises a 422 problem."""
    if message.content is None or isinstance(message.content, str):
        return MessageContent(message.content or "")
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(message.content if isinstance(message.content, list) else [None]):
        kind = part.get("type") if isinstance(part, dict) else None
        url = _url_of(part.get("source")) if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "image" and url is not None:
            found.images.append(url)
        elif kind in ("document", "audio", "video") and url is not None and url.startswith("data:"):
            found.files[str(part.get("id") or f"{kind}-{len(found.files) + 1}")] = url
        else:
            raise invalid(
                f"a part of type {kind!r} cannot be used: send text, an image, or a document with its data - at"
                f" `$.{where}.content[{index}]`"
            )
    found.text = "\n".join(texts)
    return found


def _url_of(source: Any) -> str | None:
    if not isinstance(source, dict) or not isinstance(value := source.get("value"), str):
        return None
    return f"data:{source.get('mimeType', '')};base64,{value}" if source.get("type") == "data" else value
