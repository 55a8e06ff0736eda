"""Texts that others wrote, and numbers, in few characters on one line."""

import json
from collections.abc import Mapping
from typing import Any

from cadre.journal.events import ApprovalDecided, CallTimedOut
from cadre.protocol.codes import ErrorCode, ErrorInfo


def brief(value: Any, limit: int) -> str:
    """Return one printable line of at most `limit` characters; a value that is no text is written as JSON.

    Models and tools wrote it: control characters are replaced, so it cannot move the cursor.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    head = text[: limit * 4]
    line = " ".join(head.split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= limit and len(head) == len(text) else line[: limit - 1].rstrip() + "…"


def call_text(name: str, arguments: Any, limit: int = 100) -> str:
    """Return a call on one line: refund(amount=500, note="broken")."""
    if not isinstance(arguments, Mapping):
        return brief(f"{name}({arguments})", limit)
    pairs = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items())
    return brief(f"{name}({pairs})", limit)


def number(count: int) -> str:
    """Return a count in few characters: 950, 1.2k, 3.4M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def seconds(value: float) -> str:
    """Return a duration in few characters: 40ms, 0.4s, 12s, 3m05s, 2h10m."""
    if value < 0.1:
        return f"{max(value, 0) * 1000:.0f}ms"
    if value < 10:
        return f"{value:.1f}s"
    if value < 60:
        return f"{value:.0f}s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


_CALL_ERRORS: tuple[ErrorCode, ...] = ("tool-failed", "member-failed", "timed-out", "invalid-call")


def error_text(error: ErrorInfo | Mapping[str, Any] | None) -> str:
    """Return `Type: message` of an ErrorInfo or its JSON, of a call's error the message alone, without the call that
    the viewer shows anyway; empty without an error."""
    if not error:
        return ""
    code: str | None
    if isinstance(error, ErrorInfo):
        code, kind, message, preamble = error.code, error.type, error.message, error.preamble
    else:
        code, kind = error.get("code"), error.get("type", "error")
        message, preamble = error.get("message", ""), error.get("preamble", 0)
    message = message[preamble:]
    return message if code in _CALL_ERRORS else f"{kind}: {message}"


def verdict(event: ApprovalDecided) -> str:
    """Return what a person, or the clock, decided about a call."""
    if event.verdict == "expired":
        return "no decision in time"
    return f"{event.verdict} by {event.sender or 'somebody'}" + (f": {event.feedback}" if event.feedback else "")


def too_late(event: CallTimedOut) -> str:
    """Return why a call was given up."""
    after = f"{event.seconds:g} s"
    return f"given up after {after}: nothing serves it" if event.code else f"no answer within {after}"
