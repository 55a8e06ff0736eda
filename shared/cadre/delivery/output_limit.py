"""Limits the size of outputs: what is too large goes to the blob store; a cut of it travels and says how to read on."""

from typing import Any

import msgspec

MAX_OUTPUT_BYTES = 64 * 1024
"""Size of a text, or of a value's JSON, that travels in a message."""


def oversized(value: Any, chars: int | None = None) -> bytes | None:
    """Returns the whole value as bytes when it is too large to travel, or longer than the `chars` that the caller
    reads; else None. A text is encoded as it is, anything else as JSON."""
    data = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    if len(data) > MAX_OUTPUT_BYTES:
        return data
    return data if chars is not None and len(data) > chars and len(data.decode()) > chars else None


def cut(data: bytes, limit: int, note: str) -> str:
    """Returns beginning and end of a text, `limit` bytes in all, with a note between on what is missing."""
    half = limit // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n… [{len(data) - 2 * half} bytes left out{note}] …\n{tail}"


def cut_to_read(data: bytes, ref: str, chars: int | None) -> str:
    """Cuts an output that is kept whole as `ref`, with a note between beginning and end on how to read on.

    The cut has at most `chars` characters and MAX_OUTPUT_BYTES bytes.
    """
    if chars is None:
        return cut(data, MAX_OUTPUT_BYTES, f"; the whole is {ref}")
    text = data.decode(errors="replace")
    limit = min(chars, MAX_OUTPUT_BYTES // 4)  # a character has four bytes at most
    half = max(0, limit - len(_note(len(text), ref, limit))) // 2
    if not half:
        return text[:limit]
    return text[:half] + _note(len(text) - 2 * half, ref, half) + text[-half:]


def _note(missing: int, ref: str, start: int) -> str:
    return (
        f"\n… [{missing} characters left out; the whole is {ref}:"
        f' read_output(ref="{ref}", start={start}) reads on] …\n'
    )
