"""The requests of people and their tools to the memory service, and its answers: JSON over core NATS.

Agents do not come this way: they call the tools `recall` and `remember`. These requests reach everybody's memories,
so each says whose it means, and one that does not is refused.
"""

from typing import Any, Literal

import msgspec

from cadre.protocol.messages import MemoryScope

RECALL, REMEMBER, FORGET = "recall", "remember", "forget_memory"

QUERY_RESOURCES = "query_resources"
"""The tool that searches the files of a run."""

RESOURCE = "resource"
"""The kind of what is kept of a run's files, to find it again: no recall shows it."""

MEMORY_TOOLS = (RECALL, REMEMBER, FORGET, QUERY_RESOURCES)
"""The tools that the memory service executes."""

ANSWERS = "memory"
"""Names the subjects, among those that the gateway is answered on, that this service may publish to."""

MAX_HITS = 50
"""The largest number of memories that one search or one page of a list may return."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A selection of memories: those that match everything that is given here. Something must be."""

    scope: MemoryScope | None = None
    agent: str | None = None
    team: str | None = None
    user: str | None = None
    session: str | None = None
    run: str | None = None
    """A root run stands for its whole tree."""
    all: bool = False
    """Everybody's; with it, only `scope` may be given."""


class Narrowing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Narrows what is asked for."""

    kinds: list[str] = []
    since: float | None = None
    """Remembered at or after, Unix seconds."""
    until: float | None = None


class SearchRequest(Narrowing, frozen=True, kw_only=True, omit_defaults=True):
    """Asks for the memories that fit a query best."""

    selection: Selection
    query: str
    k: int = 5
    min_score: float | None = None
    """Hits below it are left out. Scores compare within one answer: they are ranks fused, not probabilities."""


class ListRequest(Narrowing, frozen=True, kw_only=True, omit_defaults=True):
    """Asks for a page of memories, in the verbs `list` and `export`; only the latter shows expired ones."""

    selection: Selection
    limit: int = 20
    after: str | None = None
    """The `next` of the page before."""


class ShowRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Asks for the chunks of one memory."""

    memory: str
    after: str | None = None
    """The `next` of the page before."""


class ForgetRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Asks to remove either one `memory`, or everything of a selection."""

    memory: str | None = None
    selection: Selection | None = None
    confirm: bool = False
    """Without it nothing is removed, and the receipt says how much would be."""


class StatsRequest(msgspec.Struct, frozen=True):
    """Asks how many memories there are, and how they are searched."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One chunk of a memory, with where it comes from."""

    id: str
    memory: str
    """Id of the memory that it is a piece of."""
    text: str
    index: int = 0
    """The chunk's place within its memory, from 0."""
    count: int = 1
    scope: MemoryScope
    tree: str
    run: str
    step: int = 0
    agent: str
    session: str = ""
    root: str = ""
    """The agent whose session that is."""
    team: str = ""
    user: str = ""
    kind: str
    at: float
    """The time at which it was remembered, in Unix seconds."""
    expires_at: float | None = None
    embedded: bool = False
    """True if it can be found by its meaning; otherwise by its words only (for now, or for good)."""
    score: float | None = None


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks to keep chunks as an export has them; those that are there already stay one."""

    memories: list[Remembered]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The memories that a search found, the best first."""

    hits: list[Remembered]
    degraded: bool
    """Meanings were not compared, or not with all memories; `why` says what lacks."""
    why: str


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page of memories."""

    memories: list[Remembered]
    next: str | None
    """`after` of the next page."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request to forget: the chunks that it has removed, or would remove."""

    confirmed: bool
    matched: int
    forgotten: int
    left: int
    """Counted after the removal; 0, or the request failed."""
    at: float


class ImportedMemories(msgspec.Struct, frozen=True, kw_only=True):
    """The number of chunks that were kept, and are durable."""

    kept: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The number of memories, and the way in which they are searched."""

    chunks: dict[str, int]
    """The number of chunks by scope, expired ones included."""
    pending: bool
    """True if some chunks wait for their dense vectors."""
    index: str
    embeddings: str
    degraded: bool
    why: str


class MemoryProblem(msgspec.Struct, frozen=True):
    """The reason for refusing a request. `invalid`: ask otherwise; `not-found`; `unavailable`: ask again later."""

    code: Literal["invalid", "not-found", "unavailable"]
    message: str


class MemoryReply(msgspec.Struct, frozen=True):
    """The reply to a request: `error`, or else `ok` with what VERBS says."""

    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: MemoryProblem | None = None


VERBS: dict[str, tuple[type[Any], type[Any]]] = {
    "search": (SearchRequest, Found),
    "list": (ListRequest, Listed),
    "show": (ShowRequest, Listed),
    "forget": (ForgetRequest, Receipt),
    "export": (ListRequest, Listed),
    "import": (ImportRequest, ImportedMemories),
    "stats": (StatsRequest, Stats),
}
"""The request and the answer of each verb."""


class RecalledHit(msgspec.Struct, frozen=True, kw_only=True):
    """One memory as an agent recalls it."""

    id: str
    memory: str
    text: str
    score: float
    scope: MemoryScope
    agent: str
    run: str
    step: int
    kind: str
    at: float


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the tool `recall`."""

    hits: list[RecalledHit]
    degraded: bool
    why: str


class ResourceHit(msgspec.Struct, frozen=True, kw_only=True):
    """One passage of a file, as the tool `query_resources` finds it."""

    path: str
    version: int
    """The file's version, counted from 1."""
    passage: int
    """The passage's place within the file, from 0."""
    text: str
    score: float
    """Scores compare within one answer: they are ranks fused, not probabilities."""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the tool `query_resources`."""

    hits: list[ResourceHit]
    skipped: dict[str, str]
    """The files that were not searched, by path, each with the reason."""
    degraded: bool
    """Only words were compared, not meanings."""
    why: str
