"""A turn of a conversation, whichever of the two protocols brought it."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.protocol.cards import ToolCard
from cadre_gateway.access.principal import Principal
from cadre_gateway.doors.history import ToldHistory
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.verdict_words import PersonsWord
from cadre_gateway.requests.idempotency import IdempotencyKey


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller says now, and what it brings of what was before."""

    agent: str
    text: str = ""
    """"" where the caller says nothing but results and words."""
    images: list[str] = []
    files: dict[str, str] = {}
    instructions: str = ""
    history: ToldHistory
    """The messages besides `text`: the conversation, as the caller has it."""
    mark: str = ""
    """Stands for the history with `text` behind it."""
    results: dict[str, str] = {}
    """Results of the caller's functions, by call; with them the turn goes on with the run of the calls."""
    words: dict[str, PersonsWord] = {}
    """A person's words, by call; likewise."""
    continues: Place | None = None
    """The run that the turn goes on from, where the caller names it."""
    session: str | None = None
    adds: bool = False
    """True if the history adds to what the named run or session holds; else it is the whole conversation."""
    user: str | None = None
    by: str = ""
    """Who sends the turn, as decisions name them."""
    caller: Principal
    tools: list[ToolCard] = []
    output_schema: dict[str, Any] | None = None
    metadata: dict[str, str] = {}
    key: IdempotencyKey
    """The caller's own, else one that is new with each request."""
    has_own_key: bool = False
    is_retry: bool = False
    """Whether the caller's client says that it has sent the request before."""
    traceparent: str | None = None
