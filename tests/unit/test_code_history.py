"""The past of a block travels once: bytes grow with the calls, and anyone who needs all of it finds it."""

import pytest
from msgspec.structs import replace

from cadre.delivery.code_history import (
    PIECE_BYTES,
    PIECE_EXCHANGES,
    BlockHistory,
    HistoryCutter,
    cut_history,
    with_whole_history,
)
from cadre.delivery.codec import decode, encode, pack
from cadre.errors import BlobMissing, UnreadableMessage
from cadre.protocol.code import CodeExchange, CodeReply, CodeRequest
from cadre.protocol.messages import CodeCall
from harness.memory_ports import MemoryBlobs
from sandbox.service_bench import block


def exchanges(count: int, size: int = 500) -> list[CodeExchange]:
    return [
        CodeExchange(
            calls=[CodeRequest("look", {"what": str(n)})],
            replies=[CodeReply(value="x" * size)],
            clock=[n / 2],
        )
        for n in range(count)
    ]


def call_after(done: list[CodeExchange]) -> CodeCall:
    return replace(block("look('…')"), exchanges=done)


class Counting(MemoryBlobs):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    async def put(self, data: bytes) -> str:
        self.bytes += len(data)
        return await super().put(data)


async def bytes_of(count: int, size: int) -> int:
    """Of all messages of a block with so many calls, and of the blobs that they need."""
    blobs, past = Counting(), exchanges(count, size)
    shorten, sent = HistoryCutter(blobs), 0
    for done in range(count + 1):
        sent += len(await pack(await shorten(call_after(past[:done])), blobs))
    return sent + blobs.bytes


@pytest.mark.parametrize("size", [10, 1_000, 20_000])
async def test_bytes_grow_with_the_calls_and_not_with_their_square(size: int) -> None:
    few, many = await bytes_of(100, size), await bytes_of(300, size)
    assert many < 3.3 * few
    # Each exchange is sent with a piece's worth of calls at most, and stored once.
    one = len(encode(exchanges(1, size)[0]))
    head = len(encode(call_after([]))) + 120
    assert many < 301 * head + 300 * one * (PIECE_EXCHANGES + 2) / 2 * 1.2
    whole_each_time = sum(done * one for done in range(301))
    assert many < whole_each_time / 5


@pytest.mark.parametrize("count", [0, 1, 2, PIECE_EXCHANGES, PIECE_EXCHANGES + 1, PIECE_EXCHANGES + 2, 100])
async def test_what_was_left_out_is_found_again(count: int) -> None:
    blobs, call = MemoryBlobs(), call_after(exchanges(count))
    short = await HistoryCutter(blobs)(call)
    assert short.done == count
    assert len(short.exchanges) <= PIECE_EXCHANGES
    assert short.exchanges[-1:] == call.exchanges[-1:]
    assert await with_whole_history(decode(encode(short), CodeCall), blobs) == call


@pytest.mark.parametrize(("size", "in_a_piece"), [(10, PIECE_EXCHANGES), (PIECE_BYTES // 4, 4), (PIECE_BYTES, 1)])
async def test_a_piece_is_full_by_its_exchanges_or_its_bytes(size: int, in_a_piece: int) -> None:
    past = exchanges(2 * in_a_piece + 1, size)
    place, pieces = cut_history("b", BlockHistory(0, None, past[:-1]))
    assert (len(pieces), place.before, len(place.exchanges)) == (1, in_a_piece, in_a_piece)
    place, pieces = cut_history("b", BlockHistory(0, None, past))
    assert (len(pieces), place.before, len(place.exchanges)) == (2, 2 * in_a_piece, 1)


async def test_it_is_cut_alike_by_whoever_cuts_it() -> None:
    past = exchanges(70)
    steadily, at_once = HistoryCutter(MemoryBlobs()), HistoryCutter(MemoryBlobs())
    for done in range(len(past)):
        short = await steadily(call_after(past[: done + 1]))
        assert short == await at_once(call_after(exchanges(done + 1))), "as a process that begins here"
        place = BlockHistory(short.before, short.earlier, short.exchanges)
        assert cut_history(short.block, place) == (place, [])


async def test_another_past_of_the_same_block_is_not_taken_for_it() -> None:
    blobs = MemoryBlobs()
    shorten = HistoryCutter(blobs)
    await shorten(call_after(exchanges(40)))
    other = call_after(exchanges(40, size=7))
    assert await with_whole_history(await shorten(other), blobs) == other


async def test_a_message_of_before_has_all_of_it() -> None:
    call = call_after(exchanges(40))
    data = encode(call).replace(b'"before":0,"earlier":null,', b"")
    assert b"before" not in data
    assert decode(data, CodeCall) == call
    assert await with_whole_history(decode(data, CodeCall), MemoryBlobs()) == call


async def test_a_past_that_is_none_is_refused() -> None:
    blobs = MemoryBlobs()
    short = await HistoryCutter(blobs)(call_after(exchanges(40)))
    with pytest.raises(BlobMissing):
        await with_whole_history(short, MemoryBlobs())
    for wrong in (
        replace(short, before=short.before + 1),
        replace(short, before=0),
        replace(short, earlier=None),
        replace(short, block="another:code:1"),
        replace(short, earlier=await blobs.put(b"nonsense")),
    ):
        with pytest.raises(UnreadableMessage):
            await with_whole_history(wrong, blobs)
