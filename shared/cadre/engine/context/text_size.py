"""Render values as text for a model, estimate the tokens of a text without any model's own tokenizer, and cut a text
that is too long.

The estimate is made for being safe: from the kinds of characters in a text, a little more than byte pair tokenizers
make of prose, code, numbers and hashes, and up to three times as much for alphabets that they know well.
"""

import math
from typing import Any

import msgspec

CHARACTERS = 3
"""The characters of a summary that make one token, for a model that is given its length in characters."""

_KINDS = bytes(
    ord(
        "d" if 48 <= byte <= 57
        else "U" if 65 <= byte <= 90
        else "a" if 97 <= byte <= 122
        else " " if byte in b" \t\r\n"
        else "x" if byte >= 128
        else "."
    )
    for byte in range(256)
)  # fmt: skip
"""Of each byte of UTF-8: digit, capital, small letter, space, part of a letter beyond ASCII, sign."""

_SHORT = 48
"""The bytes up to which a text counts for the most tokens that it can have: a closer look would cost too much."""

_PER_CHARACTER = 5
"""No character takes more tokens than this."""

_NOTE = 24
"""Tokens of the note in a text that was cut."""


def tokens_of(text: str) -> int:
    """Estimated tokens of a text."""
    if not text:
        return 0
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= _SHORT:
        return len(raw) * 9 // 8
    count = raw.translate(_KINDS).count
    # Tokens that each occurrence adds, fitted to the byte pairs of a model in wide use and rounded up.
    single = 0.25 * count(b"a") + 0.52 * count(b"U") + 0.36 * count(b"d") + count(b".")
    single += 0.18 * count(b" ") + 0.53 * count(b"x")
    # Where one kind follows another a token ends.
    before_digits = count(b"ad") + count(b"Ud") + count(b".d") + count(b" d")
    within_words = count(b"aU") + count(b"dU") + count(b"da")
    return math.ceil(single + 0.9 * before_digits + 0.7 * within_words)


def fit(text: str, tokens: int) -> str:
    """`text`, or its two ends with a note between them when it takes up more than so many tokens."""
    if len(text) * _PER_CHARACTER <= tokens:
        return text
    weight = tokens_of(text)
    if weight <= tokens:
        return text
    characters = len(text) * max(0, tokens - _NOTE) // weight
    # The ends may be denser than the rest.
    while tokens_of(cut := clip(text, characters)) > tokens and characters:
        characters = characters * 4 // 5
    return cut


def observation_of(output: Any) -> str:
    """A text as it is, anything else as JSON."""
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def clip(text: str, limit: int | None) -> str:
    """`text`, or its two ends with a note between them when it has more than `limit` characters."""
    if limit is None or len(text) <= limit:
        return text
    note = f"\n[… {len(text) - limit} of {len(text)} characters left out …]\n"
    half = limit // 2
    return text[:half] + note + text[len(text) - (limit - half) :]
