"""Cuts a text into pieces of at most 1,024 tokens, where sentences and words end."""

import threading
from functools import cache

from semantic_text_splitter import TextSplitter

CHUNK_TOKENS = 1024
OVERLAP_TOKENS = 10

_TOKENIZER = "gpt-4o"
"""Its table is inside the splitter: nothing is downloaded."""

_splitting = threading.Lock()


def split_text(text: str) -> list[str]:
    """Returns the pieces: none for blanks alone, else at least one. Takes about a second the first time."""
    with _splitting:
        return _splitter().chunks(text)


@cache
def _splitter() -> TextSplitter:
    # About a second: the table of tokens is unpacked.
    return TextSplitter.from_tiktoken_model(_TOKENIZER, CHUNK_TOKENS, overlap=OVERLAP_TOKENS)
