"""Tests of what an executor makes of a tool's return value: files out of bytes and images, cuts that can be read on."""

import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from cadre.engine.context.text_size import clip
from cadre.protocol.tagged import MAX_LEVELS, nesting
from cadre.runtime.tool_output import MAX_OUTPUT_BYTES, cut_to_read, oversized, to_json
from cadre.tools.files import File
from harness.texts import holds

PNG = b"\x89PNG\r\n\x1a\n rest"
REF = "blob:" + "a" * 64


class Image:
    """As Pillow's looks."""

    def save(self, stream: io.BytesIO, format: str) -> None:
        assert format == "PNG"
        stream.write(PNG)


class AgentImage:
    """As smolagents' looks."""

    def to_raw(self) -> Image:
        return Image()


class AgentAudio:
    def __init__(self, path: str) -> None:
        self._path = path

    def to_string(self) -> str:
        return self._path


Image.__module__ = "PIL.Image"
AgentImage.__module__ = AgentAudio.__module__ = "smolagents.agent_types"


@dataclass
class Page:
    text: str
    shot: Any


def kinds(value: Any) -> Any:
    """With the media type in the place of each file."""
    if isinstance(value, list):
        return [kinds(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"$file"}:
            return value["$file"]["media_type"]
        return {key: kinds(item) for key, item in value.items()}
    return value


def test_files_bytes_and_images_become_files_wherever_they_stand(tmp_path: Any) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"RIFF\0\0\0\0WAVE")
    output = {
        "page": Page("x", Image()),
        "all": [AgentImage(), (AgentAudio(str(sound)), bytearray(PNG))],
        "file": File(b"%PDF-", name="a.pdf"),
        1: b"plain",
    }
    value, files, _ = to_json(output)
    assert kinds(value) == {
        "page": {"text": "x", "shot": "image/png"},
        "all": ["image/png", ["audio/wav", "image/png"]],
        "file": "application/pdf",
        "1": "application/octet-stream",
    }
    assert [file.data for file in files].count(PNG) == 3
    assert len(files) == 6


def test_what_json_cannot_say_is_said_in_words() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert to_json(loop).value == "[[...]]"
    assert to_json({"a": int}).value == {"a": "<class 'int'>"}
    assert to_json("\ud800").value == "?"


def test_a_dict_that_looks_like_a_file_is_left_alone() -> None:
    assert to_json({"$file": {"ref": REF}}) == ({"$file": {"ref": REF}}, [], [])


def test_an_output_is_cut_where_its_reader_stops() -> None:
    text = "".join(chr(97 + number % 26) for number in range(5000))
    assert oversized(text, 5000) is None
    assert oversized(text) is None
    whole = oversized(text, 1000)
    assert whole == text.encode()
    cut = cut_to_read(whole, REF, 1000)
    assert len(cut) <= 1000
    assert clip(cut, 1000) == cut
    head = cut.partition("\n… [")[0]
    assert text.startswith(head)
    assert f'read_output(ref="{REF}", start={len(head)})' in cut
    tail = cut.rpartition("] …\n")[2]
    assert text.endswith(tail)
    assert f"[{len(text) - len(head) - len(tail)} characters left out" in cut


@pytest.mark.parametrize("chars", [1, 150, 400])
def test_a_narrow_limit_is_kept_all_the_same(chars: int) -> None:
    assert len(cut_to_read(b"x" * 1000, REF, chars)) <= chars


def test_wide_characters_travel_within_the_bytes() -> None:
    whole = oversized("\N{GRINNING FACE}" * 100_000, 90_000)
    assert whole is not None
    assert len(cut_to_read(whole, REF, 90_000).encode()) <= MAX_OUTPUT_BYTES


def test_code_gets_as_much_as_travels() -> None:
    whole = oversized("x" * 100_000)
    assert whole is not None
    assert f"the whole is {REF}" in cut_to_read(whole, REF, None)


def test_a_file_over_the_limit_is_named_and_not_kept() -> None:
    large, small = File(b"1234", name="a.txt"), File(b"12")
    value, files, notes = to_json([small, {"a": large}], 3)
    assert files == [small]
    assert holds(value[1]["a"], "a.txt of 4")
    assert holds(notes[0], "a.txt of 4", "3 (CADRE_FILE_BYTES)")
    assert to_json([small], 3).notes == []


def test_what_is_nested_too_deeply_is_given_as_text() -> None:
    deep: Any = ()
    for level in range(1, MAX_LEVELS):
        deep = [deep] if level % 2 else {"in": deep}
    assert nesting(to_json(deep).value) == MAX_LEVELS
    value, _, notes = to_json((deep,))
    assert json.loads(value) == json.loads(json.dumps([deep]))
    assert holds(notes[0], "200")


def test_numbers_that_json_has_not_are_told_in_words() -> None:
    assert to_json({"mean": float("nan"), "most": [float("-inf"), 1.5]}).value == {
        "mean": "nan",
        "most": ["-inf", 1.5],
    }
