"""Convert the return value of a tool to JSON and files, and cut the texts of errors.

Images and sound of Pillow and smolagents become files. These libraries are not imported: objects are recognised by the
names of their classes.
"""

import io
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cadre.delivery.output_limit import cut
from cadre.protocol.tagged import MAX_LEVELS, nesting
from cadre.spec.answer_schema import fitted, misfits
from cadre.tools.files import File

MAX_ERROR_BYTES = 8 * 1024
_MAX_OUTPUT_CHARS = 200
"""Of an output that is shown in an error."""

_TOO_DEEP = f"what it returned is nested too deeply: at most {MAX_LEVELS} levels"

_BYTES = (bytes, bytearray, memoryview)

_IMAGE = ("PIL.Image", "Image")
_AGENT_IMAGE = "AgentImage"
_AGENT_AUDIO = "AgentAudio"


class JsonOutput(NamedTuple):
    """The value of a tool as JSON, and the files in it, whose bytes are still to be stored."""

    value: Any
    files: list[File]


def to_json(output: Any) -> JsonOutput:
    """Converts a value to JSON. Files, bytes, images and sound become `{"$file": {…}}`; any other value that JSON does
    not have becomes its text. Raises ValueError for what is nested too deeply."""
    files: dict[int, tuple[memoryview, File]] = {}

    def encode_unknown(value: Any) -> Any:
        file = value if isinstance(value, File) else file_of(value)
        if file is None:
            return str(value)
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
        found.append(file)
        return file.to_json()

    found: list[File] = []
    try:
        plain = msgspec.to_builtins(output, builtin_types=_BYTES, enc_hook=encode_unknown, str_keys=True)
        converted = JsonOutput(msgspec.json.decode(msgspec.json.encode(with_files(plain))), found)
    except (TypeError, UnicodeEncodeError, RecursionError):
        converted = JsonOutput(_as_text(output), [])
    if nesting(converted.value) > MAX_LEVELS:
        raise ValueError(_TOO_DEEP)
    return converted


def as_promised(schema: dict[str, Any], value: Any) -> tuple[Any, str | None]:
    """The value as the tool's return hint says, converted where that loses nothing; else with why it does not fit."""
    problems = misfits(schema, value)
    if not problems:
        return value, None
    if isinstance(value, int | float) and not misfits(schema, text := json.dumps(value)):
        return text, None
    if not misfits(schema, fit := fitted(schema, value)):
        return fit, None
    shown = json.dumps(value, ensure_ascii=False)
    return (
        value,
        f"it returned {shown[:_MAX_OUTPUT_CHARS]}, which is not what its return hint says: {problems[0]}",
    )


def _as_text(output: Any) -> Any:
    """Converts a value whose keys are no texts, or that has cycles or lone surrogates."""
    try:
        return msgspec.json.decode(msgspec.json.encode(output, enc_hook=str))
    except (TypeError, UnicodeEncodeError, RecursionError):
        try:
            return str(output).encode(errors="replace").decode()
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error


def cut_error(text: str) -> str:
    """Cuts the text of an error to MAX_ERROR_BYTES."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= MAX_ERROR_BYTES else cut(data, MAX_ERROR_BYTES, "")


def too_large(files: list[File], most: int) -> str | None:
    """Returns why the files of an output are refused, when one has more than `most` bytes; else None."""
    large = next((file for file in files if file.size > most), None)
    if large is None:
        return None
    name = f"file {large.name}" if Path(large.name).name else "a file"
    return f"it returned {name} of {large.size} bytes, over the limit of {most} (CADRE_FILE_BYTES)"


def file_of(value: Any) -> File | None:
    """The object as a file; None if it is of no such class. Raises what the object raises."""
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
