"""The exchanges of a block that its messages do not repeat: pieces in the blob store, each naming the one before.

A block of hundreds of calls would else send all of its past with every call, although only an interpreter that restarts
the block needs it. The cuts follow from the exchanges alone, so every process cuts alike.
"""

import hashlib
import itertools
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from cadre.delivery.codec import UNREADABLE, encode
from cadre.errors import UnreadableMessage
from cadre.ports import Blobs
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeCall
from cadre.recent import Recent

PIECE_EXCHANGES = 16
PIECE_BYTES = 64 * 1024
"""A piece ends with the exchange that brings it to one of these."""

_MAX_BLOCKS = 256
_TRUSTED_SECONDS = 1800.0
"""After which a piece is stored again: nothing may have named it since."""


class HistoryPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some exchanges of a block as a blob holds them."""

    v: Literal[1] = 1
    block: str
    before: int = 0
    """The number of exchanges before these."""
    earlier: str | None = None
    """`blob:` reference of their last piece."""
    exchanges: list[CodeExchange]


class BlockHistory(NamedTuple):
    """The exchanges of a block: the last ones inline, those before them behind a reference."""

    before: int
    earlier: str | None
    exchanges: list[CodeExchange]


_decoder = msgspec.json.Decoder(HistoryPiece)


def cut_history(block: str, place: BlockHistory) -> tuple[BlockHistory, list[bytes]]:
    """Return the same history with as few inline exchanges as possible, but at least the last; and the pieces that this
    makes."""
    before, earlier, exchanges = place
    pieces: list[bytes] = []
    begin = size = 0
    for end, exchange in enumerate(exchanges[:-1], 1):
        size += len(encode(exchange))
        if end - begin >= PIECE_EXCHANGES or size >= PIECE_BYTES:
            held = exchanges[begin:end]
            pieces.append(encode(HistoryPiece(block=block, before=before, earlier=earlier, exchanges=held)))
            earlier = f"blob:{hashlib.sha256(pieces[-1]).hexdigest()}"
            before, begin, size = before + len(held), end, 0
    return BlockHistory(before, earlier, list(exchanges[begin:])), pieces


async def with_whole_history(call: CodeCall, blobs: Blobs) -> CodeCall:
    """Return the call with all exchanges of its block. Raises UnreadableMessage, BlobMissing, RetryableError."""
    pieces: list[Sequence[CodeExchange]] = [call.exchanges]
    before, ref = call.before, call.earlier
    while before > 0 and ref is not None:
        try:
            piece = _decoder.decode(await blobs.get(ref))
        except UNREADABLE as error:
            raise UnreadableMessage(f"the past of {call.block} in {ref}: {error}") from error
        if piece.block != call.block or not 0 < len(piece.exchanges) == before - piece.before:
            raise UnreadableMessage(f"{ref} is not the past of {call.block} before exchange {before}")
        pieces.append(piece.exchanges)
        before, ref = piece.before, piece.earlier
    if before != 0 or ref is not None:
        raise UnreadableMessage(f"the past of {call.block} has {before} exchanges too few")
    exchanges = list(itertools.chain.from_iterable(reversed(pieces)))
    return replace(call, before=0, earlier=None, exchanges=exchanges)


class _StoredHistory(NamedTuple):
    before: int
    earlier: str | None
    last: CodeExchange
    """The last exchange before: that very object, in the state that the calls are made from."""
    at: float


class HistoryCutter:
    """Stores the history of each block once, so that calls need not carry it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known = Recent[str, _StoredHistory](_MAX_BLOCKS)

    async def __call__(self, call: CodeCall) -> CodeCall:
        """Return the call as it travels. Raises RetryableError."""
        if call.before or len(call.exchanges) <= 1:
            return call
        known = self._known.pop(call.block, None)
        begin, at = BlockHistory(0, None, call.exchanges), time.monotonic()
        if known is not None and _continues(call, known) and at - known.at < _TRUSTED_SECONDS:
            begin, at = BlockHistory(known.before, known.earlier, call.exchanges[known.before :]), known.at
        place, pieces = cut_history(call.block, begin)
        for piece in pieces:
            await self._blobs.put(piece)
        if place.before:
            last = call.exchanges[place.before - 1]
            self._known[call.block] = _StoredHistory(place.before, place.earlier, last, at)
        return replace(call, before=place.before, earlier=place.earlier, exchanges=place.exchanges)


def _continues(call: CodeCall, known: _StoredHistory) -> bool:
    return len(call.exchanges) > known.before and call.exchanges[known.before - 1] is known.last
