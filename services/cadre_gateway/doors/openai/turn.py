"""A turn of a conversation, whichever of the two protocols brought it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from cadre.protocol.cards import ToolCard
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.verdict_words import PersonsWord
from cadre_gateway.requests.idempotency import IdempotencyKey


class Said(NamedTuple):
    """What somebody said earlier in the conversation."""

    role: str
    text: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller says now, and what it brings of what was before."""

    agent: str
    text: str
    images: list[str] = []
    files: dict[str, str] = {}
    instructions: str = ""
    history: list[Said] = []
    """What was said before `text`."""
    results: dict[str, str] = {}
    """Results of the caller's functions, by call; with them the turn goes on with the run of the calls."""
    words: dict[str, PersonsWord] = {}
    """A person's words, by call; likewise."""
    continues: Place | None = None
    """The run that the turn goes on from, where the caller names it."""
    session: str | None = None
    user: str | None = None
    by: str = ""
    """Who sends the turn, as decisions name them."""
    may_decide: bool = True
    """Whether the sender may approve calls."""
    tools: list[ToolCard] = []
    output_schema: dict[str, Any] | None = None
    metadata: dict[str, str] = {}
    key: IdempotencyKey
    """The caller's own, else one that is new with each request."""
    has_own_key: bool = False
    is_retry: bool = False
    """Whether the caller's client says that it has sent the request before."""
    traceparent: str | None = None

    @property
    def last_answer(self) -> str:
        """What the caller was told last; "" at the beginning."""
        return next((said.text for said in reversed(self.history) if said.role == "assistant"), "")

    @property
    def first_text(self) -> str:
        """The first thing that the caller said in the conversation."""
        return next((said.text for said in self.history if said.role == "user"), self.text)
