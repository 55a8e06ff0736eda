"""Content of messages: texts, pictures and files, in the forms of both protocols."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.requests.problems import invalid

_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")


def content_of(value: Any, where: str) -> MessageContent:
    """The content of a message, which is a text, a list of parts or null. Raises a 422 problem; `where` it stands."""
    if value is None:
        return MessageContent()
    if isinstance(value, str):
        return MessageContent(text=value)
    if not isinstance(value, list):
        raise invalid("content must be a string or a list of parts", field=where)
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(value):
        texts += _take(part, found, f"{where}[{index}]")
    found.text = "\n".join(texts)
    return found


def text_of(value: Any, where: str) -> str:
    """The text of a content; what else it holds is left out. Raises a 422 problem."""
    return content_of(value, where).text


def _take(part: Any, found: MessageContent, where: str) -> Iterable[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS:
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return [text]
    elif kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str):
            found.images.append(url)
            return []
    elif kind in ("file", "input_file"):
        file = part.get("file", part)
        data = file.get("file_data") if isinstance(file, dict) else None
        if isinstance(data, str):
            name = str(file.get("filename") or f"file-{len(found.files) + 1}")
            found.files[name] = data if data.startswith("data:") else f"data:;base64,{data}"
            return []
    raise invalid(
        f"a part of type {kind!r} cannot be used: send text, an image_url, or a file with file_data",
        field=where,
    )
