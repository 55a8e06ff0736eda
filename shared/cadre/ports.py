"""The ports that the shell needs, named by what they guarantee. `cadre.adapters` has the real ones."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.journal.entry import Entry
from cadre.journal.events import RequestedCall
from cadre.protocol.deltas import Delta, StreamChunk
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.messages import Addressed, EffectClaim, EffectResult, Record, TimerFired, ToolResult
from cadre.protocol.policy import Tally
from cadre.protocol.topology import Address
from cadre.protocol.usage import Usage


class Stored(NamedTuple):
    """A journal entry and its sequence in its stream."""

    seq: int
    entry: Entry


class Appended(NamedTuple):
    """The sequence of an entry that was appended, and its hash."""

    seq: int
    hash: str


class Journal(Protocol):
    """The append-only history of each run."""

    async def read(self, tree: str, run: str) -> list[Stored]:
        """Return all entries of the run as of this moment, the first one first; [] for a new run.

        Raises BusUnavailable.
        """
        ...

    async def last(self, tree: str, run: str) -> int:
        """Return the sequence of the run's last entry as of this moment; 0 for a new run. Raises BusUnavailable."""
        ...

    async def append(
        self,
        entry: Entry,
        fence: int,
        *,
        before: str = "",
        ends_timer: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Appended:
        """Append if the last entry of the run still is the one at `fence` (0: none).

        `before` is the hash of that last entry, "" when it has none. `ends_timer` removes that timer of the run in
        the same write. `meanwhile` is called each time that the entry is on its way: it need not arrive.
        While NATS does not answer, or refuses for now, the entry is sent again. Raises Fenced when another writer was
        first.
        """
        ...


class Bus(Protocol):
    """At-least-once delivery of messages to their recipients."""

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        """Store the message for its receiver.

        `to` is the agent whose inbox a ToolResult, Report or Cancel is for. The process that asks a model for a run
        hears of its Cancel at once (`hints.cancel_hint`), which may be lost. Sending the same id twice is harmless.
        Raises RetryableError.
        """
        ...

    async def find(self, tree: str, seq: int) -> "FoundMessage | None":
        """Return what was sent about the tree and lies at this sequence of its stream; None where it is gone, or not
        known yet. Raises BusUnavailable."""
        ...

    async def pass_on(self, delivery: "Delivery", record: Record, slot: int) -> None:
        """Store a record once more, in the queue of another revision of its agent; doing so twice stores it once, for
        as long as the server remembers. Raises RetryableError."""
        ...

    async def revoke(self, settled: EffectResult) -> bool:
        """Store what settles a call unless it was claimed: no executor begins it then. A claim without a result is
        marked: no executor runs the call again after its claimer's death. An executor that is running it is sent a
        request to stop, which may be lost. Return whether the call is settled with that result, by this call or an
        earlier one. Raise RetryableError."""
        ...

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        """Have `timer` delivered to the agent's inbox at `due` (Unix seconds). Raises OutcomeUnknown."""
        ...

    async def interrupt(self, tree: str, run: str) -> None:
        """Inform the process that works for the run at this moment that the run has ended; the message may be lost."""
        ...

    async def tell(self, tree: str, piece: Delta | StreamChunk) -> None:
        """Send a piece of an answer to its watchers, or to the program that awaits it; it may be lost."""
        ...


class FoundMessage(NamedTuple):
    """A message in a queue, as read again."""

    address: Address
    data: bytes


FindSent = Callable[[str, int], Awaitable[FoundMessage | None]]
"""Returns what was sent about a tree and lies at a sequence of its stream; None where that is gone, or not known yet.
Raises BusUnavailable."""


class CallQueue(NamedTuple):
    """The queue in which an agent's calls of one tool, member or sandbox wait to be taken."""

    kind: Literal["agent", "tool", "sandbox"]
    name: str
    slot: int = 0
    """Of a member: which queue of its revisions; 0 for its own."""


class QueuedMessage(NamedTuple):
    """A message that its receiver may not have settled yet."""

    seq: int
    tree: str
    leaf: str
    """The last part of its subject: the message of a tool's call, the member's run, the run of a block of code."""
    at: float
    """Time at which it was stored, in Unix seconds."""


class QueuedCalls(Protocol):
    """Messages that an agent has sent to queues and that are not settled, as far as the queues show."""

    async def behind(self, queue: CallQueue, shard: int, after: int) -> list[QueuedMessage]:
        """Return some messages of this agent, oldest first, behind the sequence `after` and behind what is settled; []
        when there are no more. Some of them may be settled. Raises BusUnavailable."""
        ...


class Delivery(Protocol):
    """One delivery of one message of a queue, to be settled: acked, handed back or given up."""

    @property
    def subject(self) -> str: ...

    @property
    def address(self) -> Address:
        """Return what the subject says."""
        ...

    @property
    def data(self) -> bytes: ...

    @property
    def deliveries(self) -> int:
        """From 1; those that the server has forgotten are not counted."""
        ...

    @property
    def seq(self) -> int:
        """Return where the message lies in its stream."""
        ...

    @property
    def origin(self) -> int:
        """Return where the message lay first, if it was passed on from another queue of the stream; else `seq`."""
        ...

    @property
    def retried(self) -> bool:
        """It was a dead letter, and has been published again."""
        ...

    async def ack(self) -> None: ...

    async def nak(self, delay: float = 0.0) -> None:
        """Hand the message back, to be delivered again after `delay` seconds."""
        ...

    async def term(self, reason: str) -> None:
        """Give the message up: it is never delivered again, and kept as a dead letter with the reason."""
        ...


class Blobs(Protocol):
    """Content-addressed storage of anything too large for a message."""

    async def put(self, data: bytes) -> str:
        """Return `blob:<sha256>`; putting the same bytes again stores nothing."""
        ...

    async def get(self, ref: str) -> bytes:
        """Raise BlobMissing."""
        ...


class Effect(NamedTuple):
    """The progress of a call with effects."""

    claim: EffectClaim
    seq: int
    """Stream sequence of the claim, by which its result is fenced; 0 for a claim of an earlier version."""
    result: ToolResult | None
    """None while the claimer is at work, or after it died."""


class Effects(Protocol):
    """The record of who runs a call with effects and what came of it: at most one claim and one result per call."""

    async def read(self, claim: EffectClaim) -> Effect | None:
        """Return what is stored in the place of this claim at this moment; None if the call is unclaimed. Raises
        BusUnavailable, UnreadableMessage."""
        ...

    async def claim(self, claim: EffectClaim) -> int:
        """Return the sequence of the claim. Raises Fenced when the call is claimed already, RetryableError."""
        ...

    async def settle(self, settled: EffectResult) -> None:
        """Store the result of the claim at `claim_seq`.

        Raises Fenced when the claim has a result already, RetryableError, TooLarge.
        """
        ...


class Tallies(Protocol):
    """Calls that several runs count together, for rules of policies: one value per tree, and per user and day."""

    async def read(self, tree: str, name: str) -> tuple[Tally | None, int]:
        """Return the tally and its fence, never stale; None and 0 if no tally exists. Raises BusUnavailable,
        UnreadableMessage."""
        ...

    async def write(self, tree: str, name: str, tally: Tally, fence: int) -> None:
        """Replace the tally at `fence` (0: none exists yet). Raises Fenced, RetryableError."""
        ...


class Peers(Protocol):
    """The processes that run the same tools."""

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        """Return what that process says about a call it had claimed: whether its result is still to come.

        False as well when there is no such process; None when it does not answer. Raises BusUnavailable.
        """
        ...


class QuarantineRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="trial",
    rename={
        "in_group": "together",
        "attempts_alone": "alone",
        "late_crashes": "late",
        "failures": "raised",
    },
):
    """A message that came back too often, and what is known of it; removed once its handling has ended in order."""

    v: Literal[1] = 1
    seq: int
    """The sequence number of the message in the stream that also holds the record."""
    in_group: bool = False
    """It is being handled under observation, perhaps together with other suspects of its process."""
    attempts_alone: int = 0
    """Observed handlings that were begun without another suspect, since it last survived one."""
    late_crashes: int = 0
    """Handlings that outlived their observation, and were not ended in order."""
    failures: int = 0
    """Observed handlings that raised what none should."""


class QuarantineStore(Protocol):
    """Keeps the records of suspects where they survive the processes that handle them."""

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        """Return the record and its fence, never stale; None if no record exists. Raises RetryableError."""
        ...

    async def write(self, tree: str, record: QuarantineRecord, fence: int) -> int:
        """Replace the record at `fence` (0: none exists yet); returns the new fence. Raises Fenced, RetryableError."""
        ...

    async def clear(self, tree: str, seq: int) -> None:
        """Remove the record, if there is one. Raises RetryableError."""
        ...


class ModelReply(msgspec.Struct, kw_only=True, frozen=True):
    """A model's answer."""

    content: str = ""
    calls: list[RequestedCall] = []
    usage: Usage = Usage()
    model: str = ""
    finish_reason: str = ""
    items: list[dict[str, Any]] = []
    """The endpoint's other items, besides the text and the calls: reasoning, what its own tools did, citations."""
    cached_tokens: int = 0
    """Of the input tokens, those that the endpoint had cached."""
    reasoning_tokens: int = 0
    """Of the output tokens, those of reasoning."""
    response: str = ""
    """The id of the answer, where the endpoint gives one."""
    server: str = ""
    """Host and port of the endpoint, as `host:port`."""
    first_seconds: float | None = None
    """Seconds until the first piece of the answer came, where that is known."""
    context: int | None = None
    """Tokens that the endpoint takes, in and out together, if it reports them and the agent's spec does not."""
    endpoint: str = ""
    """The id of the endpoint and its model, to which `items` and `learned` belong."""
    learned: dict[str, Any] = {}
    """Keys of its profile (`cadre.spec.model.Profile`) that refusals have taught and the request lacks."""
    raw: dict[str, Any] | None = None
    """The whole answer as the endpoint gave it, where the request was `raw`: a chat completion, or a response."""


class FileIndex(Protocol):
    """An index of the files in each tree's workspace, as of this moment: reads are never stale."""

    async def read(self, tree: str, path: str) -> tuple[WorkspaceFile, int] | None:
        """The path's latest version and its fence; None when it never had one. Raises BusUnavailable."""
        ...

    async def all(self, tree: str) -> list[WorkspaceFile]:
        """Deleted ones too, in no order. Raises BusUnavailable."""
        ...

    async def count(self, tree: str) -> int:
        """Of all paths, those of deleted files too. Raises BusUnavailable."""
        ...

    async def write(self, record: WorkspaceFile, fence: int) -> int:
        """Put a version in the place of the one at `fence` (0: none exists yet); returns the new fence.

        Raises Fenced, RetryableError.
        """
        ...


class OnText(Protocol):
    """Receives the text that a model writes, while it writes."""

    async def __call__(self, text: str, /, *, of_answer: bool = False, chunk: dict[str, Any] | None = None) -> None:
        """Take the next piece of its text; `of_answer`: of what it calls `final_answer` with; `chunk`: no text, but the
        next piece of the stream by which an endpoint answers a program's request, as it was sent."""
        ...


class Model(Protocol):
    """A language model."""

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """One call, without retries: who may wait how long is the run's decision.

        `on_text` is awaited with each piece of the text, and may be with those of an answer that is written as a call.
        Raises ModelUnavailable, ModelRefused.
        """
        ...


Confirm = Callable[[], Awaitable[None]]
"""Awaited right before a request is sent; what it raises ends the call, with nothing sent."""


@runtime_checkable
class TurnTakingModel(Model, Protocol):
    """A model whose requests may wait for others before they are sent."""

    async def complete_in_turn(self, request: ModelRequest, on_text: OnText, confirm: Confirm) -> ModelReply:
        """Do as `complete`, and awaits `confirm` when the request's turn has come."""
        ...


class Clock(Protocol):
    """The time, and waiting for it."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...
