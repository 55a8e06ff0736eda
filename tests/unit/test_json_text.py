"""JSON that a model was asked for: read as it was meant, never run, and asked to it where it cannot be read."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.engine.answers.json_text import ReadingError, is_closed, read_object
from cadre.engine.answers.lenient_json import LenientError, Reader

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MEANT = {"calls": [{"name": "look", "arguments": {"at": "the 'sky'", "far": True}}], "output": None}


@pytest.mark.parametrize(
    "text",
    [
        msgspec.json.encode(MEANT).decode(),
        f"Here it is:\n```json\n{msgspec.json.encode(MEANT).decode()}\n```\nThat is all.",
        f"I looked at {{it}} first. {msgspec.json.encode(MEANT).decode()}",
        f'<think>{{"calls": []}}</think>{msgspec.json.encode(MEANT).decode()}',
        """{'calls': [{'name': 'look', 'arguments': {'at': "the 'sky'", 'far': True}}], 'output': None}""",
        r"""{'calls': [{'name': 'look', 'arguments': {'at': 'the \'sky\'', 'far': True}}], 'output': None}""",
        """{"calls": [{"name": "look", "arguments": {"at": "the 'sky'", "far": true,},},], "output": null,}""",
        """{calls: [{name: "look", arguments: {at: "the 'sky'", far: true}}], output: null}""",
        """{"output": null, "calls": [{"name": "look", "arguments": {"at": "the 'sky'", "far": true""",
    ],
)
def test_what_was_meant_is_read(text: str) -> None:
    assert read_object(text, "calls", "output") == MEANT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I am done.", '"calls", "output"'),
        ('{"thought": "none"}', '"calls", "output"'),
        ('{"calls": [{"name": "pay", "arguments": {"amount": 10', "character 51"),
        ('{"calls": [{"name": "pay", "arguments": {"to": "Ad', "character 47"),
        ('{"calls": [] "output": 1}', "character 13"),
        ('{"calls" []}', "'calls'"),
        ('{"calls": __import__("os")}', "character 10"),
        ('{"calls": []} or {"calls": [1]}', "2 JSON objects"),
        ('{"calls": ' + "[" * 5000, "more than 200 levels"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, why: str) -> None:
    with pytest.raises(ReadingError, match=why):
        read_object(text, "calls", "output")


def test_an_object_without_its_last_brackets_is_not_closed() -> None:
    assert is_closed('{"calls": []}')
    assert not is_closed('{"calls": [')
    assert not is_closed("nothing")


@given(VALUES)
def test_sound_json_is_read_as_it_is(value: object) -> None:
    text = msgspec.json.encode({"a": value})
    assert Reader(text.decode()).value() == msgspec.json.decode(text)


@given(VALUES)
def test_python_is_read_as_it_is_meant(value: object) -> None:
    text = repr({"a": value}).replace("\\x", "\\u00").replace("\\U", "\\u")
    try:
        found = Reader(text).value()
    except LenientError as error:
        pytest.fail(f"{text}: {error}")
    assert "a" in found


@given(st.text(alphabet="{}[]\"'\\,:0 atrue\n"))
def test_no_text_does_more_than_fail(text: str) -> None:
    with contextlib.suppress(ValueError):
        Reader(text).value()
