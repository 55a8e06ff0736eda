"""A tool's return value as JSON of bearable size: too much goes to the blob store, a cut of it to the run."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_OUTPUT = 64 * 1024
"""Bytes of a text, or of a value's JSON, that travel in a message."""

MAX_ERROR = 8 * 1024


def to_json(output: Any) -> Any:
    """The value as JSON has it. What JSON cannot say is replaced, where it stands, by its text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(output, enc_hook=str))
    except (TypeError, UnicodeEncodeError, RecursionError):
        # Cycles, lone surrogates, keys that have no text.
        return str(output).encode(errors="replace").decode()


def oversized(value: Any) -> bytes | None:
    """The whole value as bytes when it is too large to travel: a text as it is, anything else as JSON."""
    data = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    return data if len(data) > MAX_OUTPUT else None


def cut(data: bytes, limit: int, note: str) -> str:
    """Beginning and end of a text, `limit` bytes in all, with a note on what is missing between."""
    half = limit // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n… [{len(data) - 2 * half} bytes left out{note}] …\n{tail}"


def cut_error(text: str) -> str:
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= MAX_ERROR else cut(data, MAX_ERROR, "")
