"""Frames that hostile code forges: refused before they cost more than an honest one may."""

import asyncio
import time
from typing import Any

import pytest

from cadre_sandbox.interpreters.contract import Failed
from cadre_sandbox.interpreters.decode import MAX_BLOBS, MAX_ITEMS, check_values, read_frame
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.wire.frames import PREFIX, BrokenFrame, encode
from cadre_sandbox.wire.values import MAX_JSON_SIZE
from sandbox.worlds import run

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORGER = """
import json, os, struct
items = {items}
head = '{{"n":1,"kind":"finished","final":true,"text":"","logs":"","notes":[],"blobs":%s,"output":%s}}'
text = (head % (json.dumps({sizes}), items)).encode()
body = bytes(sum({sizes}))
data = struct.pack(">II", len(text), len(body)) + text + body
end = b'{{"n":1,"kind":"unsaved","why":"","blobs":[]}}'
data += struct.pack(">II", len(end), 0) + end
for n in range(3, 30):
    try:
        at = 0
        while at < len(data): at += os.write(n, data[at:at + 65536])
    except OSError: pass
"""

HOSTILE = {
    "items": ("'[' + '0,' * 2_600_000 + '0]'", []),
    "objects": ("'[' + '{},' * 2_600_000 + '{}]'", []),
    "one blob many times": ("json.dumps([{'$given': ['bytes', 0]}] * 2000)", [60 << 20]),
    "empty blobs": ("0", [0] * (MAX_BLOBS + 1)),
    "depth": ("'[' * 1_000_000 + ']' * 1_000_000", []),
    "one long text": ("'\"' + 'a' * 3_000_000 + '\"'", []),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_forged_frame_ends_its_block_and_holds_nobody_else_up(sandbox: Sandbox, name: str) -> None:
    items, sizes = HOSTILE[name]
    session, longest, over = await sandbox.open(), 0.0, False

    async def tick() -> None:
        nonlocal longest
        while not over:
            # The thread's own time: a busy machine takes none of it away.
            since = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - since)

    ticking = asyncio.create_task(tick())
    outcome = await run(session, FORGER.format(items=items, sizes=sizes), authorized_imports=["*"])
    over = True
    await ticking
    await session.close()
    assert isinstance(outcome, Failed)
    assert outcome.error == "Crashed", outcome
    assert longest < 0.5


async def _frame(header: dict[str, Any], *blobs: bytes) -> None:
    data = encode(header, blobs)
    text, _ = PREFIX.unpack(data[: PREFIX.size])
    check_values(await read_frame(data[8 : 8 + text], data[8 + text :]))


async def test_what_honest_code_may_say_passes() -> None:
    await _frame({"output": [0] * (MAX_JSON_SIZE - 1)})
    await _frame({"output": ",[{" * (MAX_JSON_SIZE // 3)})
    await _frame({"output": [{"$given": ["bytes", 0]}, {"$given": ["image", 1]}]}, b"a", b"a")
    await _frame(
        {
            "output": {"$dict": {"$given": ["bytes", 0]}},
            "calls": [{"arguments": {"a": {"$given": ["bytes", 0]}}}],
        },
        b"",
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"output":[' + b'"a",' * MAX_ITEMS + b'""],"blobs":[]}',
        b'{"output":[' + b'"\\"[",' * MAX_ITEMS + b'""],"blobs":[]}',
    ],
)
async def test_items_are_counted_between_texts_only(text: bytes) -> None:
    with pytest.raises(BrokenFrame, match="items"):
        await read_frame(text, b"")


async def test_bytes_stand_in_one_place_each() -> None:
    twice = {"a": {"$given": ["bytes", 0]}, "b": [{"$file": ["blob:" + "0" * 64, "", "", 1, 0]}]}
    with pytest.raises(BrokenFrame, match="several places"):
        await _frame({"calls": [{"name": "f", "arguments": twice}]}, b"x")


async def test_numbers_are_finite() -> None:
    for number in (float("nan"), float("inf")):
        with pytest.raises(BrokenFrame, match="number"):
            await _frame({"output": {"a": [number]}})
