"""What a rule of a script answers: text, calls of tools, or an error, and how it is sent."""

from typing import Any

import msgspec


class CallReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call of a reply."""

    name: str
    arguments: dict[str, Any] | str = {}
    """An object, or text that is sent as it stands (so that a script can play broken JSON)."""
    id: str = ""


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An HTTP error instead of a completion."""

    status: int
    message: str = "an error that the script asked for"
    type: str = ""
    code: str | None = None
    param: str | None = None
    headers: dict[str, str | int | float] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a rule answers, and how. Every text may be a template."""

    content: str | None = None
    tool_calls: list[CallReply] = []
    items: list[dict[str, Any]] = []
    """Output items before the text, such as `web_search_call`: in answers of the Responses API only."""
    annotations: list[dict[str, Any]] = []
    """Citations of the text."""
    error: ErrorReply | None = None
    latency: float = 0.0
    """Seconds before the first byte."""
    hold: bool = False
    """Wait, before anything else, for `POST /script/release`."""
    delay: float = 0.0
    """Seconds after each streamed piece."""
    chunk: int = 12
    """Characters in a streamed piece."""
    drop_after: int | None = None
    """Cut the connection after so many streamed pieces; a reply that is not streamed is cut in the middle."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """What the usage says of the tokens read and written."""
    finish: str | None = None
    """The finish_reason; `tool_calls` or `stop` when it is left out. In the Responses API `length` and `content_filter`
    make the response incomplete, `failed` has it fail, `error` ends its stream with an error."""
