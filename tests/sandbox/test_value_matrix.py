"""The table of docs/code-agents.md#values: what arrives as what, from code to answers, tools and other code."""

import collections
import datetime
import json
import math
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.engine.calls.call_check import check_arguments
from cadre.protocol.tagged import for_people, for_schema, for_tool
from cadre.tool import tool
from cadre_sandbox.jail.values import from_value, to_value
from cadre_sandbox.serving.exchange import from_json, to_json
from cadre_sandbox.wire.values import BinaryValue, TaggedValue, dump, load, pack, unpack
from harness.memory_ports import MemoryBlobs
from sandbox.service_bench import Bench, after, block, reply

IMPORTS = "import array, collections, dataclasses, datetime, decimal, enum, fractions, pathlib, uuid\n"
MODULES = [
    "array",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "pathlib",
    "uuid",
]

EXACT: list[tuple[str, Any]] = [
    ("[None, True, 1, 1.5, 'é']", [None, True, 1, 1.5, "é"]),
    ("{'a': [{'b': ()}]}", {"a": [{"b": []}]}),
    ("float('nan')", {"$given": ["float", "nan"]}),
    ("float('-inf')", {"$given": ["float", "-inf"]}),
    ("10**400", {"$given": ["int", "1" + "0" * 400]}),
    ("2**70", 2**70),
    ("1.5-2j", {"$given": ["complex", "1.5-2j"]}),
    ("fractions.Fraction(-1, 3)", {"$given": ["fraction", "-1/3"]}),
    ("datetime.timedelta(days=-1, microseconds=5)", {"$given": ["timedelta", "-P0DT86399.999995S"]}),
    ("{(1, 'a'): 2}", {"$given": ["dict", [[{"$given": ["tuple", [1, "a"]]}, 2]]]}),
    ("{frozenset([1]): 2}", {"$given": ["dict", [[{"$given": ["frozenset", [1]]}, 2]]]}),
    ("{1: 'a', '1': 'b'}", {"$given": ["dict", [[1, "a"], ["1", "b"]]]}),
    ("{'$given': ['float', 'nan']}", {"$dict": {"$given": ["float", "nan"]}}),
]
"""Expressions, and what they are in JSON. Code gets them back as they were, but for lists that were tuples."""

CHANGED: list[tuple[str, Any, Any]] = [
    ("(1, (2,))", [1, [2]], [1, [2]]),
    ("{3}", [3], [3]),
    ("range(2)", [0, 1], [0, 1]),
    ("collections.deque([1])", [1], [1]),
    ("{'a': 1}.keys()", ["a"], ["a"]),
    ("{'a': 1}.values()", [1], [1]),
    ("{'a': 1}.items()", [["a", 1]], [["a", 1]]),
    ("array.array('i', [1])", [1], [1]),
    ("{1: 'a', None: 'b', 1.5: 'c'}", {"1": "a", "None": "b", "1.5": "c"}, None),
    ("collections.Counter('aab')", {"a": 2, "b": 1}, None),
    ("collections.namedtuple('P', 'x y')(1, 2)", [1, 2], None),
    ("dataclasses.make_dataclass('D', ['x'])(1)", {"x": 1}, None),
    ("enum.Enum('E', {'A': 'a'}).A", "a", None),
    ("datetime.datetime(2026, 1, 2, 3, 4, 5)", "2026-01-02T03:04:05", None),
    ("datetime.date(2026, 1, 2)", "2026-01-02", None),
    ("{datetime.date(2026, 1, 2): 1}", {"2026-01-02": 1}, None),
    ("decimal.Decimal('1.10')", "1.10", None),
    ("uuid.UUID(int=5)", "00000000-0000-0000-0000-000000000005", None),
    ("pathlib.PurePosixPath('a/b')", "a/b", None),
]
"""Expressions, what they are in JSON, and (None: the same) what other code gets."""

REFUSED = [
    ("(n for n in [1])", "is a generator"),
    ("{'a': [lambda: 1]}", "the answer['a'][0] is a function"),
    ("object()", "is a object; pass texts"),
    ("{(1, object): 2}", "is a type"),
    ("{E.A: 1, 'a': 2}", "different keys"),
    ("fractions.Fraction(1, 10**4100)", "more than 4,000 digits"),
    ("deep(99)", "nested more than 100 deep"),
    ("b'x' * (65 << 20)", "at most 67 may be"),
]


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_from_code_to_answers_tools_and_other_code_and_back(bench: Bench, other: Bench) -> None:
    expressions = [*(row[0] for row in EXACT), *(row[0] for row in CHANGED)]
    expected = [*(row[1] for row in EXACT), *(row[1] for row in CHANGED)]
    returned = [
        *(row[0].replace("()", "[]", 1) if "()" in row[0] else row[0] for row in EXACT),
        *(repr(row[1] if row[2] is None else row[2]) for row in CHANGED),
    ]
    code = f"{IMPORTS}values = [{', '.join(expressions)}]\nback = look(values)\n"
    call = block(code + f"print(repr(back) == repr([{', '.join(returned)}]))", imports=MODULES)
    asked = await bench.yielded(call)
    assert asked.calls[0].arguments == {"what": expected}, "as a tool or member is asked"
    told = reply(call, asked, expected)
    for replica in (bench, other):
        done = await replica.finished(told)
        assert (done.error, done.logs) == (None, "True\n"), "as a tool's result, in a replay too"
    kept = f"print(repr(values[:13]) == repr([{', '.join(expressions[:13])}]))\nfinal_answer(values)"
    ended = await bench.finished(after(call, done, kept, imports=MODULES))
    assert (ended.logs, ended.output) == ("True\n", expected), "another block has the very objects"
    check = f"{IMPORTS}[repr(values) == repr([{', '.join(returned)}])]"
    given = block(check, run="s", inputs={"values": ended.output}, imports=MODULES)
    assert (await bench.finished(given)).output == [True], "as arguments of a task"


async def test_what_cannot_travel_is_an_error_that_says_so(bench: Bench) -> None:
    head = IMPORTS + "class E(enum.Enum):\n    A = 'a'\ndef deep(n): return {(1,): deep(n - 1)} if n else 1\n"
    for number, (expression, why) in enumerate(REFUSED):
        call = block(head + f"final_answer({expression})", run=f"r{number}", imports=MODULES)
        error = (await bench.finished(call)).error
        assert why in str(error), expression
    goes_on = await bench.finished(block("(n for n in [1])", run="g"))
    assert goes_on.error is None
    assert goes_on.output.startswith("<generator"), "of a block that goes on, the text is read and nothing else"


async def test_a_large_answer_is_whole(bench: Bench) -> None:
    code = "final_answer({'rows': [[n / 7, {(n,): 'text'}] for n in range(50_000)], 'raw': b'x'})"
    done = await bench.finished(block(code))
    form, ref = done.output["$given"]
    assert form == "json"
    assert len(msgspec.json.decode(await bench.blobs.get(ref))["rows"]) == 50_000
    check = "final_answer([len(it['rows']), it['rows'][-1], it['raw']])"
    read = await bench.finished(block(check, run="s", inputs={"it": done.output}))
    pairs = [[{"$given": ["tuple", [49_999]]}, "text"]]
    raw = {"$given": ["bytes", await bench.blobs.put(b"x")]}
    assert read.output == [50_000, [49_999 / 7, {"$given": ["dict", pairs]}], raw]


# --- nested values of any form

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.binary(max_size=4)
    | st.complex_numbers()
    | st.fractions()
    | st.timedeltas()
    | st.dates()
    | st.uuids()
)
_keys = st.recursive(
    st.none() | st.integers() | st.text("ab1$", max_size=2) | st.floats(allow_nan=False) | st.timedeltas(),
    lambda keys: st.tuples(keys, keys) | st.frozensets(keys, max_size=1),
    max_leaves=3,
)
_marked = st.sampled_from(["$given", "$file", "$dict", "a"])
_values = st.recursive(
    _scalars,
    lambda values: (
        st.lists(values, max_size=3)
        | st.lists(values, max_size=3).map(tuple)
        | st.lists(values, max_size=3).map(collections.deque)
        | st.dictionaries(_keys | _marked, values, max_size=3)
        | st.dictionaries(_marked, values, max_size=2)
    ),
    max_leaves=12,
)


def arrives(item: Any) -> Any:
    """The object that other code gets, as the table says."""
    if isinstance(item, list | tuple | collections.deque):
        return [arrives(part) for part in item]
    if isinstance(item, dict):
        plain = all(key is None or isinstance(key, str | int | float) for key in item)
        if plain and len({str(key) for key in item}) == len(item):
            return {str(key): arrives(part) for key, part in item.items()}
        return {key: arrives(part) for key, part in item.items()}
    if isinstance(item, datetime.date):
        return item.isoformat()
    return str(item) if type(item).__name__ == "UUID" else item


async def _travel(item: Any) -> Any:
    """Out of the jail, over the bus and into another."""
    blobs = MemoryBlobs()
    given: list[bytes] = []
    packed = json.loads(json.dumps(pack(to_value(item), given)))
    on_the_bus = msgspec.json.decode(msgspec.json.encode(await to_json(unpack(packed, given), blobs)))
    return from_value(await from_json(on_the_bus, blobs))


@settings(max_examples=300)
@given(_values)
async def test_nested_values_arrive_as_the_table_says(item: Any) -> None:
    assert repr(await _travel(item)) == repr(arrives(item))
    assert repr(from_value(load(dump(to_value(item))))) == repr(arrives(item)), "in a large answer"


_contents = st.recursive(
    st.none() | st.integers() | st.floats() | st.text("naif1/+jPDTS.-", max_size=8),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_marked, values, max_size=2),
    max_leaves=8,
)
_forms = st.sampled_from(["float", "int", "complex", "fraction", "timedelta", "tuple", "frozenset", "dict", "song"])


@settings(max_examples=300)
@given(st.lists(st.tuples(_forms, _contents).map(lambda pair: {"$given": [*pair]}), max_size=2) | _contents)
async def test_what_anybody_writes_is_read_without_an_error(value: Any) -> None:
    blobs = MemoryBlobs()
    from_value(await from_json(value, blobs))
    for reader in (for_tool, for_schema, for_people):
        reader(value)


async def test_a_forged_table_or_large_value_is_what_can_be_read_of_it() -> None:
    assert from_value(BinaryValue("json", b"{")) == b"{"
    assert from_value(TaggedValue("complex", "abc")) == {"$given": ["complex", "abc"]}
    assert from_value(TaggedValue("dict", [[["unhashable"], 1]])) == {"$given": ["dict", [[["unhashable"], 1]]]}


# --- readers that are no code


@tool
def plot(x: float, wait: datetime.timedelta, named: dict[int, str], other: Any = None) -> str:
    """Plots.

    Args:
        x: A number.
        wait: A duration.
        named: Names.
        other: Anything.
    """
    return ""


TOLD = {
    "x": {"$given": ["float", "nan"]},
    "wait": {"$given": ["timedelta", "-P1DT2.500000S"]},
    "named": {"1": "a"},
    "other": {"$given": ["dict", [[{"$given": ["tuple", [1, 2]]}, {"$given": ["fraction", "1/3"]}]]]},
}


async def test_a_tool_gets_python_values_by_its_hints() -> None:
    check_arguments("plot", plot.card.input_schema, TOLD)
    got = plot.validate(TOLD)
    assert math.isnan(got["x"])
    assert got["wait"] == -datetime.timedelta(days=1, seconds=2.5)
    assert (got["named"], got["other"]) == ({1: "a"}, {(1, 2): "1/3"})
    assert Fraction(got["other"][(1, 2)]) == Fraction(1, 3)


async def test_people_read_texts() -> None:
    assert for_people(TOLD) == {
        "x": "nan",
        "wait": "-P1DT2.500000S",
        "named": {"1": "a"},
        "other": {"(1, 2)": "1/3"},
    }
    both = {"$given": ["dict", [[1, "a"], ["1", {"$dict": {"$given": 5}}]]]}
    assert for_people(both) == [[1, "a"], ["1", {"$given": 5}]]
    assert for_tool(both) == {1: "a", "1": {"$given": 5}}
