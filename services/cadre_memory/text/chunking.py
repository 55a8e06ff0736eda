"""From a text to the points that keep it: pieces of at most 1,024 tokens, cut where sentences and words end."""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from typing import NamedTuple
from uuid import UUID, uuid5

from semantic_text_splitter import TextSplitter

from cadre.protocol.messages import MemoryScope
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState

CHUNK_TOKENS = 1024
OVERLAP_TOKENS = 10

_TOKENIZER = "gpt-4o"
"""Its table is inside the splitter: nothing is downloaded."""

_NAMES = UUID("6f1f6d5b-6b0f-5e2c-9d5a-4f0c4b7f3f11")

_splitting = threading.Lock()


def pieces(text: str) -> list[str]:
    """At least one for a text that holds anything but blanks."""
    with _splitting:
        return _splitter().chunks(text)


def chunk_id(memory: str, index: int) -> str:
    """Derived: having the same call's text remembered twice stores it once."""
    return str(uuid5(_NAMES, f"{memory}/{index}"))


def content_hash(text: str) -> str:
    """Of the text without what sets no two texts apart: blanks at its ends and runs of blanks within."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


class About(NamedTuple):
    """What is known of a memory besides its text and its owner."""

    scope: MemoryScope
    kind: str
    step: int
    at: float
    expires_at: float | None
    state: EmbedState


def chunks_of(texts: list[str], caller: Caller, about: About) -> list[Chunk]:
    """The points of one memory, made of its pieces."""
    origin = caller.origin
    return [
        Chunk(
            id=chunk_id(caller.call, index),
            memory=caller.call,
            text=text,
            index=index,
            count=len(texts),
            scope=about.scope,
            tree=caller.tree,
            run=caller.run,
            step=about.step,
            agent=caller.agent,
            session=origin.session or "",
            team=origin.team or "",
            user=origin.user or "",
            kind=about.kind,
            created_at=about.at,
            expires_at=about.expires_at,
            hash=content_hash(text),
            embed_state=about.state,
        )
        for index, text in enumerate(texts)
    ]


@cache
def _splitter() -> TextSplitter:
    # About a second: the table of tokens is unpacked.
    return TextSplitter.from_tiktoken_model(_TOKENIZER, CHUNK_TOKENS, overlap=OVERLAP_TOKENS)
