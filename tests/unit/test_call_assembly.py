"""The calls of an answer, put together from pieces as endpoints cut, number, repeat and rename them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.adapters.models.call_assembly import CallAssembly, read_piece

NAMES = ("weather", "clock", "pay", "get", "get_weather")
BERN, ROME, PAID = '{"city": "Bern"}', '{"city": "Rome"}', '{"to": "Ann", "amount": 5}'


def p(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    """A piece of a call."""
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


def assembled(*pieces: Any, names: tuple[str, ...] = NAMES) -> list[tuple[str, str]]:
    calls = CallAssembly(names)
    for one in pieces:
        piece = read_piece(one)
        assert piece is not None
        calls.add(piece)
    return [(call.name, call.arguments) for call in calls.done()]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab"\\{}[]:, é🙂', max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
_CALLS = st.lists(
    st.tuples(st.sampled_from(NAMES[:3]), st.dictionaries(st.text('ab"{}', min_size=1, max_size=3), _VALUES)),
    min_size=1,
    max_size=4,
    unique_by=lambda call: json.dumps(call, sort_keys=True),
)


@settings(max_examples=400, deadline=None)
@given(calls=_CALLS, data=st.data())
def test_the_same_calls_come_of_all_cuts(calls: list[tuple[str, dict[str, Any]]], data: st.DataObject) -> None:
    """No matter what an endpoint leaves out, repeats or changes of indexes, ids and names."""
    index = data.draw(st.sampled_from(["own", "zero", "none", "text"]))
    ids = data.draw(st.sampled_from(["own", "repeated", "none", "number"]))
    naming = data.draw(st.sampled_from(["first", "each", "apart", "in two"]))
    repeats = data.draw(st.booleans())
    streams = []
    for n, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments, ensure_ascii=data.draw(st.booleans()))
        cuts = sorted(data.draw(st.lists(st.integers(1, max(1, len(text) - 1)), max_size=5)))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        at = {"own": n, "zero": 0, "none": None, "text": str(n)}[index]
        own = {"own": f"c{n}", "repeated": f"c{n}", "none": None, "number": 100 + n}[ids]
        if naming == "in two":
            parts = ["", "", *parts]
            named = [name[:2], name[2:], *[None] * len(parts[2:])]
        elif naming == "apart":
            parts = ["", *parts]
            named = [name, *[None] * len(parts[1:])]
        else:
            named = [name, *([name] if naming == "each" else [None]) * len(parts[1:])]
        every = ids == "repeated"
        pieces = [p(at, own if every or not k else None, named[k], part) for k, part in enumerate(parts)]
        if repeats:
            pieces.append(p(at, own, name, text))
        streams.append(pieces)
    if index in ("own", "text") and data.draw(st.booleans()):
        sent = [one for row in zip_longest(streams) for one in row]
    else:
        sent = [one for stream in streams for one in stream]
    assert [(name, json.loads(text)) for name, text in assembled(*sent)] == calls


def zip_longest(streams: list[list[Any]]) -> list[list[Any]]:
    """The pieces of calls that come interleaved."""
    return [[stream[n] for stream in streams if n < len(stream)] for n in range(max(map(len, streams)))]


ONE_CALL = {
    "the last piece repeats the whole call": [
        p(0, "A", "pay"),
        p(0, None, None, PAID),
        p(0, "A", "pay", PAID),
    ],
    "it repeats it under another id": [
        p(0, "A", "pay"),
        p(0, "B", None, PAID[:5]),
        p(0, "C", None, PAID[5:]),
        p(0, "D", "pay", PAID),
    ],
    "it repeats it in other words": [
        p(0, "A", "pay", PAID),
        p(0, "A", "pay", '{"amount":5,"to":"Ann"}'),
    ],
    "it repeats it without id and index": [p(0, "A", "pay", PAID), p(None, None, "pay", PAID)],
    "it repeats the arguments alone": [p(0, "A", "pay"), p(0, None, None, PAID), p(0, None, None, PAID)],
    "it repeats them in pieces": [
        p(0, "A", "pay", PAID),
        p(0, "A", "pay", PAID[:9]),
        p(0, "A", None, PAID[9:]),
    ],
    "it repeats it at another index": [p(0, "A", "pay", PAID), p(1, "A", "pay", PAID)],
    "the name comes once more behind it": [p(0, "A", "pay", PAID), p(0, None, "pay", "")],
    "the arguments stand there twice": [p(0, "A", "pay", PAID + PAID)],
    "the id changes with each piece": [
        p(0, "a", "pay"),
        p(0, "b", None, PAID[:7]),
        p(0, "c", None, PAID[7:]),
    ],
    "two ids alternate": [
        p(0, "a", "pay"),
        p(0, "b", None, PAID[:7]),
        p(0, "a", None, PAID[7:12]),
        p(0, "b", None, PAID[12:]),
    ],
    "the id changes and the name repeats": [p(0, "1", "pay"), p(0, "2", "pay", PAID)],
    "the name comes last": [p(0, "A", None, PAID), p(0, "A", "pay")],
    "the id comes first": [p(0, "A"), p(0, None, "pay"), p(0, None, None, PAID)],
    "the name grows": [p(0, "A", "p"), p(0, "A", "pa"), p(0, "A", "pay"), p(0, "A", None, PAID)],
    "the arguments grow": [p(0, "A", "pay", PAID[:4]), p(0, "A", None, PAID[:9]), p(0, "A", None, PAID)],
    "an empty object comes first": [p(0, "A", "pay", "{}"), p(0, None, None, PAID)],
    "an empty object comes last": [p(0, "A", "pay", PAID), p(0, "A", "pay", "{}")],
    "no index and no id behind the first piece": [
        p(None, "A", "pay"),
        p(None, None, None, PAID[:6]),
        p(None, None, None, PAID[6:]),
    ],
    "the index counts the pieces": [p(0, "A", "pay", PAID[:4]), p(1, None, None, PAID[4:])],
    "placeholders around it": [p(1), p(0, "A", "pay", PAID), p(2, "B", "", ""), p(0), p(0, "", "", "")],
    "the arguments are an object": [p(0, "A", "pay", json.loads(PAID))],
    "blanks in the name": [p(0, "A", " pay\n", PAID)],
    "a prefix of the name": [p(0, "A", "functions.pay", PAID)],
    "a prefix and a number": [p(0, "A", "functions.pay:0", PAID)],
    "harmony's marks behind the name": [p(0, "A", "pay<|channel|>commentary", PAID)],
    "blanks behind it": [p(0, "A", "pay", PAID), p(0, None, None, " \n"), p(0, None, "pay", "\n")],
    "the index is a text, then a number": [p("0", "A", "pay"), p(0.0, None, None, PAID)],
    "without `function` around it": [{"index": 0, "id": 7, "name": "pay", "parameters": json.loads(PAID)}],
}


@pytest.mark.parametrize("pieces", ONE_CALL.values(), ids=ONE_CALL.keys())
def test_one_call_whatever_becomes_of_it(pieces: list[Any]) -> None:
    assert [(name, json.loads(text)) for name, text in assembled(*pieces)] == [("pay", json.loads(PAID))]


TWO = [("weather", BERN), ("weather", ROME)]
TWO_CALLS = {
    "the same index, other ids": [p(0, "A", "weather", BERN), p(0, "B", "weather", ROME)],
    "the same id, other indexes": [p(0, "x", "weather", BERN), p(1, "x", "weather", ROME)],
    "neither id nor index": [p(None, "", "weather", BERN), p(None, "", "weather", ROME)],
    "the same index and no ids, in pieces": [
        p(0, None, "weather", BERN[:5]),
        p(0, None, None, BERN[5:]),
        p(0, None, "weather", ""),
        p(0, None, None, ROME),
    ],
    "all heads first, told apart by ids": [
        p(0, "A", "weather"),
        p(0, "B", "weather"),
        p(0, "A", None, BERN[:5]),
        p(0, "B", None, ROME[:5]),
        p(0, "A", None, BERN[5:]),
        p(0, "B", None, ROME[5:]),
    ],
    "the first index is 1": [p(1, "A", "weather", BERN), p(2, "B", "weather", ROME)],
}


@pytest.mark.parametrize("pieces", TWO_CALLS.values(), ids=TWO_CALLS.keys())
def test_two_calls_stay_two(pieces: list[Any]) -> None:
    assert assembled(*pieces) == TWO


def test_equal_calls_with_ids_of_their_own_are_two() -> None:
    assert assembled(p(0, "A", "clock", "{}"), p(0, "B", "clock", "{}")) == [("clock", "{}")] * 2
    assert assembled(p(0, "A", "clock", "{}"), p(1, "B", "clock", "{}")) == [("clock", "{}")] * 2


@pytest.mark.parametrize(
    ("pieces", "names"),
    [
        ([p(0, "A", "get"), p(0, "A", "_weather", "{}")], [("get_weather", "{}")]),
        (
            [p(None, None, "get", "{}"), p(None, None, "get_weather", "{}")],
            [("get", "{}"), ("get_weather", "{}")],
        ),
        ([p(0, "A", "get"), p(1, "B", "get_weather", "{}")], [("get", ""), ("get_weather", "{}")]),
        ([p(0, "A", "clock"), p(0, "B", "weather", BERN)], [("clock", ""), ("weather", BERN)]),
    ],
)
def test_functions_on_offer_decide_what_a_name_is(pieces: list[Any], names: list[tuple[str, str]]) -> None:
    assert assembled(*pieces) == names


@pytest.mark.parametrize(
    ("name", "arguments", "call"),
    [
        (f"weather,{BERN}", "", ("weather", BERN)),
        (f"weather{BERN}", "{}", ("weather", BERN)),
        (f"functions.weather({BERN})", None, ("weather", BERN)),
        (f"weather>{BERN}</function>", "", ("weather", BERN)),
        ('"weather"', BERN, ("weather", BERN)),
        ("weather()", BERN, ("weather", BERN)),
        ("`weather`", BERN, ("weather", BERN)),
        # Not where the call has arguments, the JSON breaks off, or no such function is on offer.
        (f"weather,{BERN}", ROME, (f"weather,{BERN}", ROME)),
        (f"weather,{BERN[:8]}", "", (f"weather,{BERN[:8]}", "")),
        (f"wipe,{BERN}", "", (f"wipe,{BERN}", "")),
        ("weather2", BERN, ("weather2", BERN)),
    ],
)
def test_a_name_may_be_quoted_or_hold_the_arguments(name: str, arguments: Any, call: Any) -> None:
    assert assembled(p(0, "A", name, arguments)) == [call]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # A second object that no name goes with is never made, and takes nothing from the first.
        ([p(0, "A", "weather", BERN), p(0, None, "", ROME)], [("weather", BERN), ("", ROME)]),
        ([p(0, "A", "weather", BERN + ROME)], [("weather", BERN), ("", ROME)]),
        ([p(0, "A", "weather", BERN), p(1, "B", "", '{"a": 1}')], [("weather", BERN), ("", '{"a": 1}')]),
        ([p(0, "A", None, BERN)], [("", BERN)]),
        # What is no JSON stays as the model wrote it, and is read or refused as it stands.
        ([p(0, "A", "weather", BERN), p(0, None, None, "}")], [("weather", BERN + "}")]),
        ([p(0, "A", "weather", BERN[:9])], [("weather", BERN[:9])]),
    ],
)
def test_what_is_broken_is_kept_apart(pieces: list[Any], calls: list[tuple[str, str]]) -> None:
    assert assembled(*pieces) == calls


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.builds(
            p,
            st.sampled_from([None, 0, 1, "0", 1.5, True, "x"]),
            st.sampled_from([None, "", "a", "b", 7, []]),
            st.sampled_from([None, "", "pay", "clock", "pa", 5]),
            st.sampled_from([None, "", "{", "}", '"', "\\", BERN, "{}", [], {"a": 1}, 3, "null"]),
        ),
        max_size=12,
    )
)
def test_no_pieces_are_an_error(pieces: list[Any]) -> None:
    for name, text in assembled(*pieces):
        assert isinstance(name, str)
        assert isinstance(text, str)


def test_very_many_pieces_take_no_longer_than_their_sum() -> None:
    text = json.dumps({"code": "{}\\" * 60_000})
    calls = CallAssembly(NAMES)
    for character in text:
        piece = read_piece(p(0, "A", "pay", character))
        assert piece is not None
        calls.add(piece)
    assert [call.arguments for call in calls.done()] == [text]
