"""Encode the words of a text by BM25, Russian and English stems side by side, or without stems on platforms that
qdrant-edge-py has no build for. Needs no files and no network."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import qdrant_edge

Language = Literal["english", "russian"]

STEMS = importlib.util.find_spec("qdrant_edge") is not None
"""True if words are stemmed: only where there is a build of qdrant-edge-py for this platform."""

_CYRILLIC = re.compile(r"[\u0400-\u052f]")


def encode_document(text: str) -> SparseVector:
    """Return the weights of a stored text. It takes 4 ms for 800 words, in which the interpreter does nothing else."""
    if not STEMS:
        return unstemmed_document(text)
    return _united(_encoder(language).embed_document(part) for language, part in _by_script(text))


def encode_query(text: str) -> SparseVector:
    """Return the weights of a query; they are empty when it has no words but the most common ones."""
    if not STEMS:
        return unstemmed_query(text)
    return _united(_encoder(language).embed_query(part) for language, part in _by_script(text))


def _by_script(text: str) -> list[tuple[Language, str]]:
    """Split a text by script: a stemmer of one language leaves the words of the other as they are."""
    russian: list[str] = []
    english: list[str] = []
    for word in text.split():
        (russian if _CYRILLIC.search(word) else english).append(word)
    parts: list[tuple[Language, list[str]]] = [("english", english), ("russian", russian)]
    return [(language, " ".join(words)) for language, words in parts if words]


@cache
def _encoder(language: Language) -> qdrant_edge.Bm25:
    import qdrant_edge

    return qdrant_edge.Bm25(config=qdrant_edge.Bm25Config(language=language))


def _united(parts: Iterable[qdrant_edge.SparseVector]) -> SparseVector:
    return sparse_vector(pair for part in parts for pair in zip(part.indices, part.values, strict=True))


_WORD = re.compile(r"\w+")
_SATURATION, _LENGTH_SHARE, _AVERAGE_LENGTH = 1.2, 0.75, 256.0
_MASK = 0xFFFFFFFF


def unstemmed_document(text: str) -> SparseVector:
    """Return the weights of a stored text."""
    words = Counter(_WORD.findall(text.lower()))
    relative = sum(words.values()) / _AVERAGE_LENGTH
    damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * relative)
    return sparse_vector((token_id(word), n * (_SATURATION + 1) / (n + damping)) for word, n in words.items())


def unstemmed_query(text: str) -> SparseVector:
    """Return the weights of a query: 1 for each word."""
    return sparse_vector((token_id(word), 1.0) for word in _WORD.findall(text.lower()))


def token_id(word: str) -> int:
    """Return a word's id: the absolute value of its signed MurmurHash3 (32 bits, seed 0)."""
    hashed = _murmur(word.encode())
    return min(hashed, 2**32 - hashed)


def _murmur(data: bytes) -> int:
    hashed = 0
    for start in range(0, len(data) & ~3, 4):
        hashed ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        hashed = (_rotated(hashed, 13) * 5 + 0xE6546B64) & _MASK
    if tail := data[len(data) & ~3 :]:
        hashed ^= _scrambled(int.from_bytes(tail, "little"))
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = ((hashed ^ (hashed >> shift)) * factor) & _MASK
    return hashed ^ (hashed >> 16)


def _scrambled(block: int) -> int:
    return _rotated(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


class SparseVector(NamedTuple):
    """BM25 weights by token id: two lists of the same length, ordered by token id."""

    indices: list[int]
    values: list[float]


def sparse_vector(weights: Iterable[tuple[int, float]]) -> SparseVector:
    """Order weights by token id; where an id stands twice, the largest weight counts."""
    largest: dict[int, float] = {}
    for index, weight in weights:
        largest[index] = max(weight, largest.get(index, 0.0))
    return SparseVector(sorted(largest), [largest[index] for index in sorted(largest)])
