"""Convert the return value of a tool to JSON and files, and cut the texts of errors.

Images and sound of Pillow and smolagents become files. These libraries are not imported: objects are recognised by the
names of their classes.
"""

import io
import math
import reprlib
from array import array
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cadre.protocol.tagged import MAX_LEVELS, nesting
from cadre.spec.answer_schema import misfits
from cadre.spec.schema_form import fitting
from cadre.tools.files import File

MAX_ERROR_BYTES = 8 * 1024

_BYTES = (bytes, bytearray, memoryview)

_IMAGE = ("PIL.Image", "Image")
_AGENT_IMAGE = "AgentImage"
_AGENT_AUDIO = "AgentAudio"


class JsonOutput(NamedTuple):
    """The value of a tool as JSON, the files in it, whose bytes are still to be stored, and notes for the model."""

    value: Any
    files: list[File]
    notes: list[str]


def to_json(output: Any, most_bytes: int | None = None) -> JsonOutput:
    """Convert any value to JSON. Files, bytes, images and sound become `{"$file": {…}}`; any other value
    that JSON does not have becomes its text, and so does what is nested too deeply.

    Args:
        most_bytes: Of one file: a larger one is named in the value, and not kept.
    """
    files: dict[int, tuple[memoryview, File]] = {}

    def encode_unknown(value: Any) -> Any:
        file = value if isinstance(value, File) else file_of(value)
        if file is None:
            return _as_builtin(value)
        # Passed through as it is, and found again below; kept, so that no other object takes its id.
        place = memoryview(b"")
        files[id(place)] = (place, file)
        return place

    def with_files(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: with_files(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [with_files(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if not isinstance(value, _BYTES):
            return value
        known = files.get(id(value))
        file = known[1] if known is not None else File(bytes(value))
        if most_bytes is not None and file.size > most_bytes:
            name = f"file {file.name}" if file.name else "a file"
            notes.append(f"{name} of {file.size} bytes is over the limit of {most_bytes} (CADRE_FILE_BYTES)")
            return f"[{name} of {file.size} bytes, which was not kept]"
        found.append(file)
        return file.to_json()

    found: list[File] = []
    notes: list[str] = []
    try:
        plain = msgspec.to_builtins(_unfolded(output), builtin_types=_BYTES, enc_hook=encode_unknown, str_keys=True)
        value = msgspec.json.decode(msgspec.json.encode(with_files(plain)))
    except (TypeError, ValueError, RecursionError):
        found, value = [], _as_text(output)
    if nesting(value) > MAX_LEVELS:
        notes.append(f"it is nested deeper than {MAX_LEVELS} levels, and given as text")
        value = msgspec.json.encode(value).decode()
    return JsonOutput(value, found, notes)


def as_promised(schema: dict[str, Any], value: Any) -> tuple[Any, str]:
    """Return the value as the tool's return hint says, converted where that loses nothing; else the value and what does
    not fit."""
    fit = fitting(schema, value)
    problems = misfits(schema, fit, "the result")
    return (value, f"it is not what the tool's return hint says: {problems[0]}") if problems else (fit, "")


def _unfolded(value: Any) -> Any:
    """Replace objects of pydantic by what they are as JSON, also within lists and dicts."""
    if hasattr(type(value), "__pydantic_serializer__"):
        return _of_pydantic(value)
    if type(value) is dict:
        return {key: _unfolded(item) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return [_unfolded(item) for item in value]
    return value


def _of_pydantic(value: Any) -> Any:
    """Return the object as its class has it in JSON, by alias; where it holds bytes or files, these stay as they
    are."""
    serializer = type(value).__pydantic_serializer__
    plain = serializer.to_python(value, by_alias=True, warnings=False, serialize_as_any=True)
    if _holds_files(plain):
        return plain
    return serializer.to_python(
        value, mode="json", by_alias=True, warnings=False, serialize_as_any=True, fallback=_as_builtin
    )


def _holds_files(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_files, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_files, value))
    return isinstance(value, (*_BYTES, File)) or file_of(value) is not None


def _as_builtin(value: Any) -> Any:
    """Return what an object that JSON does not have says as a builtin value; at last its text."""
    if hasattr(type(value), "__pydantic_serializer__"):
        return _of_pydantic(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    listed = getattr(value, "tolist", None)  # arrays and numbers of numpy, and what is like them
    if callable(listed):
        return listed()
    if isinstance(value, range | deque | KeysView | ValuesView | ItemsView | array):
        return list(value)
    try:
        return str(value)
    except Exception as without:
        return f"<{type(value).__name__}: its text cannot be had: {type(without).__name__}>"


def _as_text(output: Any) -> Any:
    """Convert a value whose keys are no texts, or that has cycles, lone surrogates, or too many levels."""
    try:
        return msgspec.json.decode(msgspec.json.encode(output, enc_hook=_as_builtin))
    except (TypeError, ValueError, RecursionError):
        try:
            return str(output).encode(errors="replace").decode()
        except Exception:  # the text of a result is somebody else's code, or it has too many levels for Python
            return reprlib.repr(output)


def cut_error(text: str) -> str:
    """Cut the text of an error to MAX_ERROR_BYTES."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= MAX_ERROR_BYTES else cut(data, MAX_ERROR_BYTES, "")


def file_of(value: Any) -> File | None:
    """Return the object as a file; None if it is of no such class. Raises what the object raises."""
    classes = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    ours = {name for module, name in classes if module.partition(".")[0] == "smolagents"}
    if _AGENT_AUDIO in ours:
        # `to_string` writes the samples to a file and returns its path.
        return File.from_path(Path(value.to_string()))
    if _AGENT_IMAGE in ours:
        value = value.to_raw()
        classes = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    if _IMAGE not in classes:
        return None
    stream = io.BytesIO()
    value.save(stream, format="PNG")
    return File(stream.getvalue(), media_type="image/png")


MAX_OUTPUT_BYTES = 64 * 1024
"""Size of a text, or of a value's JSON, that travels in a message."""


def oversized(value: Any, chars: int | None = None) -> bytes | None:
    """Return the whole value as bytes when it is too large to travel, or longer than the `chars` that the caller
    reads; else None. A text is encoded as it is, anything else as JSON."""
    data = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    if len(data) > MAX_OUTPUT_BYTES:
        return data
    return data if chars is not None and len(data) > chars and len(data.decode()) > chars else None


def cut(data: bytes, limit: int, note: str) -> str:
    """Return beginning and end of a text, `limit` bytes in all, with a note between on what is missing."""
    half = limit // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n… [{len(data) - 2 * half} bytes left out{note}] …\n{tail}"


def cut_to_read(data: bytes, ref: str, chars: int | None) -> str:
    """Cut an output that is kept whole as `ref`, with a note between beginning and end on how to read on.

    The cut has at most `chars` characters and MAX_OUTPUT_BYTES bytes.
    """
    if chars is None:
        return cut(data, MAX_OUTPUT_BYTES, f"; the whole is {ref}")
    text = data.decode(errors="replace")
    limit = min(chars, MAX_OUTPUT_BYTES // 4)  # a character has four bytes at most
    half = max(0, limit - len(_note(len(text), ref, limit))) // 2
    if not half:
        return text[:limit]
    return text[:half] + _note(len(text) - 2 * half, ref, half) + text[-half:]


def _note(missing: int, ref: str, start: int) -> str:
    return (
        f'\n… [{missing} characters left out; the whole is {ref}: read_output(ref="{ref}", start={start}) reads on] …\n'
    )
