"""A tool's return value as JSON, and the files in it; what went wrong in few words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cadre.delivery.output_limit import cut
from cadre.protocol.json_depth import MAX_LEVELS, nesting
from cadre.tools.files import File
from cadre.tools.foreign_files import file_of

MAX_ERROR = 8 * 1024

_TOO_DEEP = f"what it returned is nested too deeply: at most {MAX_LEVELS} levels"

_BYTES = (bytes, bytearray, memoryview)


class Told(NamedTuple):
    """What a tool returned, as JSON, and the files in it, whose bytes are to be stored."""

    value: Any
    files: list[File]


def to_json(output: Any) -> Told:
    """The value as JSON has it. Files, bytes, images and sound stand in it as `{"$file": {…}}`; what else JSON
    cannot say is replaced, where it stands, by its text. Raises ValueError for what is nested too deeply."""
    files: dict[int, tuple[memoryview, File]] = {}

    def said(value: Any) -> Any:
        file = value if isinstance(value, File) else file_of(value)
        if file is None:
            return str(value)
        # Passed through as it is, and found again below; kept, so that no other object takes its id.
        place = memoryview(b"")
        files[id(place)] = (place, file)
        return place

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: placed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [placed(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if not isinstance(value, _BYTES):
            return value
        known = files.get(id(value))
        file = known[1] if known is not None else File(bytes(value))
        found.append(file)
        return file.to_json()

    found: list[File] = []
    try:
        plain = msgspec.to_builtins(output, builtin_types=_BYTES, enc_hook=said, str_keys=True)
        told = Told(msgspec.json.decode(msgspec.json.encode(placed(plain))), found)
    except (TypeError, UnicodeEncodeError, RecursionError):
        told = Told(_in_words(output), [])
    if nesting(told.value) > MAX_LEVELS:
        raise ValueError(_TOO_DEEP)
    return told


def _in_words(output: Any) -> Any:
    """Of a value whose keys are no texts, which has cycles or lone surrogates."""
    try:
        return msgspec.json.decode(msgspec.json.encode(output, enc_hook=str))
    except (TypeError, UnicodeEncodeError, RecursionError):
        try:
            return str(output).encode(errors="replace").decode()
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error


def cut_error(text: str) -> str:
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= MAX_ERROR else cut(data, MAX_ERROR, "")


def too_large(files: list[File], most: int) -> str | None:
    """Why the files of an output are refused."""
    large = next((file for file in files if file.size > most), None)
    if large is None:
        return None
    name = f"file {large.name}" if Path(large.name).name else "a file"
    return f"it returned {name} of {large.size} bytes, over the limit of {most} (CADRE_FILE_BYTES)"
