"""Images, tables, bytes and files from outside: what variables, tools and members give is what the code has."""

from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from cadre.protocol.code import CodeReply
from cadre.protocol.files import holds_binary
from cadre.protocol.messages import CodeCall, FileInfo
from cadre_sandbox.serving.exchange import from_json, to_json
from cadre_sandbox.wire.values import BinaryValue, FileValue
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from sandbox.service_bench import Bench, after, block, exchange, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOWHERE = "blob:" + "0" * 64


async def answered(bench: Bench, call: CodeCall, said: CodeReply) -> CodeCall:
    asked = await bench.yielded(call)
    return exchange(call, asked.calls, [said], asked.clock)


async def file(bench: Bench, data: bytes, **about: Any) -> dict[str, Any]:
    info = FileInfo(ref=await bench.blobs.put(data), size=len(data), **about)
    return {"$file": msgspec.to_builtins(info)}


async def test_what_one_code_returns_another_takes_in(bench: Bench) -> None:
    done = await bench.finished(block("final_answer({'raw': [b'abc', 1], 'own': {'$given': 5, '$dict': {}}})"))
    taken = block("[raw[0], raw[1], own]", run="s", inputs=done.output)
    again = await bench.finished(taken)
    assert again.output == [{"$given": ["bytes", await bench.blobs.put(b"abc")]}, 1, done.output["own"]]
    assert again.notes == []


async def test_a_table_is_rows_where_pandas_is_not(bench: Bench, other: Bench) -> None:
    ref = await bench.blobs.put(b"town,sold\nUlm,3\nBonn,4\n")
    call = block("rows = look('sales')\n[row['town'] for row in rows]")
    call = await answered(bench, call, CodeReply(value={"$given": ["table", ref]}))
    for replica in (bench, other):
        assert (await replica.finished(call)).output == ["Ulm", "Bonn"]


@pytest.mark.skipif(find_spec("PIL") is not None, reason="Pillow is installed here")
async def test_an_image_without_pillow_is_bytes_that_say_so_and_stays_an_image(bench: Bench, other: Bench) -> None:
    given = {"$given": ["image", await bench.blobs.put(b"\x89PNG and the rest")]}
    code = "kept = photo\nprint(photo)\nprint(photo[1:4], isinstance(photo, bytes))\nlook(photo)"
    call = block(code, inputs={"photo": given})
    asked = await bench.yielded(call)
    assert holds(asked.logs, "Pillow", "b'PNG' True")
    assert asked.calls[0].arguments == {"what": given}
    done = await other.finished(reply(call, asked, None))
    assert done.error is None, "the same again in a replay"
    assert (await bench.finished(after(call, done, "final_answer([kept])"))).output == [given]


async def test_a_result_too_large_to_travel_is_what_it_was(bench: Bench, other: Bench) -> None:
    rows = [{"n": n, "text": "é" * 50} for n in range(2_000)]
    ref = await bench.blobs.put(msgspec.json.encode(rows))
    call = block("rows = look('all')\n[len(rows), rows[-1]['n'], type(rows).__name__]")
    call = await answered(bench, call, CodeReply(value='[{"n":0,…', blob=ref, blob_form="json"))
    for replica in (bench, other):
        assert (await replica.finished(call)).output == [2_000, 1_999, "list"]


async def test_what_is_large_may_hold_what_json_has_not(bench: Bench) -> None:
    value = [{"$given": ["bytes", await bench.blobs.put(b"abc")]}, "x" * 70_000]
    ref = await bench.blobs.put(msgspec.json.encode(value))
    call = await answered(bench, block("look('it')[0]"), CodeReply(value="…", blob=ref, blob_form="json"))
    assert (await bench.finished(call)).output == value[0]


async def test_a_file_can_be_read_kept_and_passed_on(bench: Bench, other: Bench) -> None:
    given = await file(bench, "grün".encode(), name="a.txt", media_type="text/plain")
    code = "f = look('it')\nprint(f, f.name, f.media_type, f.size, f.text(), len(f.read()))\nlook(f)"
    call = reply(first := block(code), await bench.yielded(first), given)
    asked = await bench.yielded(call)
    assert asked.logs == "<file a.txt (text/plain, 5 bytes)> a.txt text/plain 5 grün 5\n"
    assert asked.calls[0].arguments == {"what": given}
    done = await other.finished(reply(call, asked, None))
    assert done.error is None
    kept = await bench.finished(after(call, done, "print(f.text())\nfinal_answer({'file': f})"))
    assert (kept.logs, kept.output) == ("grün\n", {"file": given})


async def test_a_file_that_code_writes_out_is_that_file(bench: Bench, other: Bench) -> None:
    """A model has read of a file and passes it on as it read it."""
    given = await file(bench, b"abc", name="a.txt", media_type="text/plain")
    call = block(f"look({given!r})\n'done'")
    asked = await bench.yielded(call)
    assert asked.calls[0].arguments == {"what": given}
    assert (await other.finished(reply(call, asked, None))).output == "done"


async def test_a_file_too_large_for_the_code_can_be_passed_on(bench: Bench) -> None:
    given = {"$file": {"ref": NOWHERE, "name": "film", "size": 65 << 20, "media_type": "video/mp4"}}
    call = block("try:\n    film.read()\nexcept ValueError as e:\n    print(e)\nlook(film)", inputs={"film": given})
    asked = await bench.yielded(call)
    assert "film" in asked.logs, "the error names the file"
    assert asked.calls[0].arguments == {"what": given}


async def test_a_result_that_is_nowhere_is_the_tools_error(bench: Bench) -> None:
    call = block("try:\n    look('it')\nexcept CallError as e:\n    final_answer(str(e))")
    call = await answered(bench, call, CodeReply(value={"$given": ["image", NOWHERE]}))
    assert str(NOWHERE) in (await bench.finished(call)).output


async def test_a_variable_that_is_nowhere_is_noted(bench: Bench) -> None:
    given = {"$given": ["bytes", NOWHERE]}
    call = block("look('x')\ntype(data).__name__", inputs={"data": given})
    done = await bench.finished(await answered(bench, call, CodeReply(value=1)))
    assert done.output == "dict"
    (note,) = done.notes
    assert str(NOWHERE) in note


LOOKALIKES: list[Any] = [
    {"$given": 5},
    {"$given": ["image", "blob:x"]},
    {"$given": ["song", NOWHERE]},
    {"$given": ["bytes", NOWHERE], "more": 1},
    {"$file": {"name": "no ref"}},
    {"$file": {"ref": "blob:x"}},
    {"$dict": {"a": 1}},
    [{"$dict": []}],
]


@pytest.mark.parametrize("value", LOOKALIKES, ids=str)
async def test_what_only_looks_like_one_is_what_it_is(bench: Bench, value: Any) -> None:
    call = block("[type(it).__name__, str(it)]", inputs={"it": value})
    assert (await bench.finished(call)).output == [type(value).__name__, str(value)]


VALUES: list[Any] = [
    None,
    [1, {"a": [BinaryValue("bytes", b"1"), BinaryValue("table", b"a\n1\n")]}],
    {"$given": {"$file": BinaryValue("image", b"x")}},
    {"$dict": {"$dict": {"$given": 1}}},
    [FileValue(NOWHERE, "text/plain", "a", 3), {"$file": 1}],
]


@pytest.mark.parametrize("value", VALUES, ids=str)
async def test_values_come_back_from_the_bus_as_they_went(value: Any) -> None:
    blobs = MemoryBlobs()
    assert await from_json(await to_json(value, blobs), blobs, open_files=False) == value


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("text", False),
        ({"$given": 1, "b": 2}, False),
        ([{"a": {"$given": ["bytes", NOWHERE]}}], True),
        ({"$file": {"ref": NOWHERE}}, True),
    ],
)
async def test_reports_that_hold_more_than_json_are_told_apart(value: Any, more: bool) -> None:
    assert holds_binary(value) is more
