"""Messages as bytes: every type comes back as it was, and what cannot be read says why."""

import enum
import typing
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.delivery.codec import (
    SPILL_BYTES,
    decode,
    encode,
    newer_schema,
    pack,
    pack_entry,
    unpack,
    unpack_call,
    unpack_entry,
    unpack_record,
)
from cadre.delivery.hash_chain import completed
from cadre.engine.commands import CallModel
from cadre.errors import BlobMissing, NewerSchema, UnreadableMessage
from cadre.journal.arrivals import ModelLost, ModelReplied, Poisoned
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.unions import close
from cadre.protocol.cards import Presence
from cadre.protocol.messages import (
    SCHEMA_VERSION,
    Addressed,
    EffectClaim,
    EffectResult,
    Record,
    Spilled,
    ToolCall,
)
from cadre.spec.agent import AgentSpec
from harness.memory_ports import MemoryBlobs
from unit.loop.build import SPEC, SimulatedRun, call, result, task

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    int: st.integers(0, 2**40),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Any: JSON,
    AgentSpec: st.just(SPEC),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that a message's field may have."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is Union or isinstance(kind, type(int | str)):
        return st.one_of([values(one) for one in args])
    if origin is list:
        return st.lists(values(args[0]), max_size=2)
    if origin is tuple and args[-1] is ...:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if origin is set:
        return st.sets(values(args[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=2)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    hints = typing.get_type_hints(kind)
    names = [field.name for field in msgspec.structs.fields(kind)]
    return st.deferred(lambda: st.builds(kind, **{name: values(hints[name]) for name in names}))


MESSAGES = sorted(
    {*get_args(Record), *get_args(Addressed), Spilled, EffectClaim, EffectResult, Presence},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_message_comes_back_as_it_was(kind: type[msgspec.Struct]) -> None:
    @settings(max_examples=15)
    @given(values(kind))
    def check(message: msgspec.Struct) -> None:
        assert decode(encode(message), kind) == message

    check()


@pytest.mark.parametrize("kind", close().events)
def test_every_event_comes_back_as_it_was(kind: type[msgspec.Struct]) -> None:
    @settings(max_examples=10)
    @given(values(kind))
    def check(event: Any) -> None:
        entry = Entry(
            arrived=ArrivalRecord("Task"),
            run="t",
            agent="a",
            n=1,
            cause="c",
            at=1.5,
            events=[event],
            prev="AwE",
        )
        assert decode(encode(entry), Entry) == completed(entry)

    check()


def test_tags_are_the_names_of_the_http_api_and_no_two_are_alike() -> None:
    tags = [kind.__struct_config__.tag for kind in close().events]
    assert len(set(tags)) == len(tags)
    assert {"run.accepted", "model.called", "tool.called", "delegate.started", "run.finished"} <= set(tags)


def test_a_missing_version_is_this_one() -> None:
    fields = msgspec.json.decode(encode(task()))
    assert fields.pop("v") == SCHEMA_VERSION
    assert decode(msgspec.json.encode(fields), Record) == task()


@pytest.mark.parametrize("kind", [Record, ToolCall, Entry])
def test_a_newer_schema_is_told_as_such(kind: Any) -> None:
    newer = SCHEMA_VERSION + 1
    data = b'{"v": %d, "type": "something.new", "id": "x"}' % newer
    with pytest.raises(NewerSchema, match=rf"\b{newer}\b.*\b{SCHEMA_VERSION}\b.*upgrade") as caught:
        decode(data, kind)
    assert (caught.value.found, caught.value.known) == (newer, SCHEMA_VERSION)
    error = newer_schema(data)
    assert error is not None
    assert error.found == newer
    assert newer_schema(encode(task())) is None
    assert newer_schema(b"not JSON") is None


def changed(**fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(encode(task())), **fields})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a message"),
        (b"{", "not a message"),
        (b'"\xff"', "not a message"),
        (b"[1]", "not a message"),
        (b"[" * 100_000, "not a message"),
        (b'{"v": "one", "type": "task"}', "not a message"),
        (changed(type="tusk"), "'tusk'"),
        (changed(type="tool_call"), "'tool_call'"),
        (changed(at="noon"), r"'task': Expected `float`, got `str` - at `\$.at`"),
        (changed(reply_to={"agent": "a"}), r"missing required field `run` - at `\$.reply_to`"),
        (changed(v=0), "'task'"),
        (b'{"v": 1, "id": "x"}', "'unknown'"),
        (b'{"v": 1, "type": "entry", "events": 7}', "'entry'"),
        (encode(task("latin")).replace(b"latin", b"\xe9"), "'task'.*utf-8"),
        (encode(task(inputs={"k": 7})).replace(b"7", b"[" * 9000 + b"]" * 9000), "recursion"),
    ],
)
def test_what_cannot_be_read_is_explained(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableMessage, match=why) as caught:
        decode(data, Record)
    assert not isinstance(caught.value, NewerSchema)


async def test_a_small_message_travels_whole() -> None:
    blobs = MemoryBlobs()
    data = await pack(task(), blobs)
    assert data == encode(task())
    assert await unpack_record(data, blobs) == task()
    assert blobs.held == {}


async def test_a_message_at_the_limit_travels_whole_and_one_byte_more_spills() -> None:
    blobs = MemoryBlobs()
    room = SPILL_BYTES - len(encode(task("")))
    assert len(await pack(task("x" * room), blobs)) == SPILL_BYTES
    assert blobs.held == {}
    large = task("x" * (room + 1))
    data = await pack(large, blobs)
    assert len(data) < 500
    spilled = decode(data, Spilled)
    assert (spilled.id, spilled.tree, spilled.run, spilled.size) == ("r1:task", "r1", "r1", SPILL_BYTES + 1)
    assert await unpack_record(data, blobs) == large


async def test_large_calls_results_and_entries_spill_too() -> None:
    blobs, text = MemoryBlobs(), "x" * SPILL_BYTES
    large = result("r1_1_0", text)
    assert await unpack_record(await pack(large, blobs), blobs) == large
    asked = ToolCall(id="r1_1_0", tree="r1", run="r1", at=1.0, agent="a", tool="add", arguments={"k": text})
    assert await unpack_call(await pack(asked, blobs), blobs) == asked
    sim = SimulatedRun().begin()
    sim.say(call("look", at=text))
    sim.arrive(result("r1_1_0", 1))
    for entry in sim.journal():
        sealed = await pack_entry(entry, "", blobs)
        assert await unpack_entry(sealed.data, blobs) == msgspec.structs.replace(entry, hash=sealed.hash)
    assert len(blobs.held) == 3


async def test_a_spilled_message_is_read_as_strictly_as_any() -> None:
    blobs = MemoryBlobs()
    data = await pack(task("x" * SPILL_BYTES), blobs)
    with pytest.raises(UnreadableMessage, match="'task'"):
        await unpack(data, ToolCall, blobs)
    blobs.held.clear()
    with pytest.raises(BlobMissing) as missing:
        await unpack_record(data, blobs)
    assert missing.value.ref.encode() in data


def test_the_class_of_an_event_or_arrival_says_all_about_it() -> None:
    others: tuple[type[Any], ...] = (ModelLost, ModelReplied, Poisoned, CallModel)
    asked_for = (*close().events, *close().records, *others)
    assert {kind.__name__: kind.__subclasses__() for kind in asked_for if kind.__subclasses__()} == {}
