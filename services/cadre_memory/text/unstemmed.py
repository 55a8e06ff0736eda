"""Encodes words by BM25 without stemming them, for platforms that qdrant-edge-py has no build for.

A word that is its own stem has the same token id as in `bm25`; weights follow the same formula.
"""

import re
from collections import Counter

from cadre_memory.text.sparse import SparseVector, sparse_vector

_WORD = re.compile(r"\w+")
_SATURATION, _LENGTH_SHARE, _AVERAGE_LENGTH = 1.2, 0.75, 256.0
_MASK = 0xFFFFFFFF


def encode_document(text: str) -> SparseVector:
    """Returns the weights of a stored text."""
    words = Counter(_WORD.findall(text.lower()))
    relative = sum(words.values()) / _AVERAGE_LENGTH
    damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * relative)
    return sparse_vector((token_id(word), n * (_SATURATION + 1) / (n + damping)) for word, n in words.items())


def encode_query(text: str) -> SparseVector:
    """Returns the weights of a query: 1 for each word."""
    return sparse_vector((token_id(word), 1.0) for word in _WORD.findall(text.lower()))


def token_id(word: str) -> int:
    """Returns a word's id: the absolute value of its signed MurmurHash3 (32 bits, seed 0)."""
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
