"""Python objects of the code to values that travel, and back: images, tables and arrays as bytes of a known form."""

import csv
import dataclasses
import datetime
import decimal
import enum
import importlib
import io
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from cadre_sandbox.wire.values import (
    BLOB_REF,
    UNKNOWN_MEDIA_TYPE,
    BinaryForm,
    BinaryValue,
    FileValue,
    Value,
    encodable,
)

_MAX_DEPTH = 100


class RawImage(bytes):
    """The bytes of an image's file that could not be opened. Passed on, it is an image again."""

    why = "Pillow is not installed"

    def __repr__(self) -> str:
        return f"<the {len(self)} bytes of an image's file: {self.why}>"

    __str__ = __repr__


class File:
    """A file that a tool returned or the task came with."""

    def __init__(self, given: FileValue) -> None:
        self._given = given

    @property
    def name(self) -> str:
        """The name of the file; may be empty."""
        return self._given.name

    @property
    def media_type(self) -> str:
        """The media type, such as text/csv."""
        return self._given.media_type

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._given.size

    def read(self) -> bytes:
        """The content. Raises ValueError for a file that is too large to be read here."""
        if self._given.data is None:
            raise ValueError(f"{self!r} is too large to be read here: pass it to a tool")
        return self._given.data

    def text(self) -> str:
        """The content as text. Raises ValueError for what is not UTF-8, or too large."""
        return self.read().decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        return f"<file {self.name or self._given.ref} ({self.media_type}, {self.size} bytes)>"


class NotAValue(TypeError):
    """The object cannot leave the interpreter; the message says where in it and what to do."""


def to_value(item: Any, place: str = "it", depth: int = 0) -> Value:
    """The object as a value that can leave the interpreter; `place` names it in errors. Raises NotAValue."""
    if isinstance(item, enum.Enum):
        return to_value(item.value, place, depth)
    if isinstance(item, str):
        return encodable(str(item))
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, int):
        return int(item)
    if isinstance(item, float):
        return _finite(float(item), place)
    if depth >= _MAX_DEPTH:
        raise NotAValue(f"{place} is nested more than {_MAX_DEPTH} deep")
    if isinstance(item, Mapping):
        if (file := _written_file(item)) is not None:
            return file
        return {
            _key(key, place): to_value(part, f"{place}[{key!r}]", depth + 1) for key, part in item.items()
        }
    if isinstance(item, list | tuple | set | frozenset | range):
        return [to_value(part, f"{place}[{index}]", depth + 1) for index, part in enumerate(item)]
    return _special(item, place, depth)


def _finite(number: float, place: str) -> float:
    if not math.isfinite(number):
        raise NotAValue(f"{place} is {number}, which JSON does not have; replace it by None or a number")
    return number


def _key(key: object, place: str) -> str:
    if key is None or isinstance(key, str | int | float | bool | datetime.date):
        return encodable(str(key))
    raise NotAValue(f"a key of {place} is a {type(key).__name__}; keys are texts or numbers")


def _special(item: Any, place: str, depth: int) -> Value:
    if isinstance(item, File):
        return replace(item._given, data=None)
    if isinstance(item, RawImage):
        return BinaryValue("image", bytes(item))
    if isinstance(item, bytes | bytearray | memoryview):
        return BinaryValue("bytes", bytes(item))
    if isinstance(item, datetime.date | datetime.time):
        return item.isoformat()
    if isinstance(item, decimal.Decimal | PurePath):
        return str(item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = dataclasses.fields(item)
        return {f.name: to_value(getattr(item, f.name), f"{place}.{f.name}", depth + 1) for f in fields}
    if (image := _loaded("PIL.Image")) and isinstance(item, image.Image):
        file = io.BytesIO()
        item.save(file, format="PNG")
        return BinaryValue("image", file.getvalue())
    if (pandas := _loaded("pandas")) and isinstance(item, pandas.DataFrame):
        return BinaryValue("table", item.to_csv(index=False).encode())
    if (pandas := _loaded("pandas")) and isinstance(item, pandas.Series | pandas.Index):
        return to_value(item.tolist(), place, depth + 1)
    if (numpy := _loaded("numpy")) and isinstance(item, numpy.ndarray | numpy.generic):
        return to_value(item.tolist(), place, depth + 1)
    raise NotAValue(f"{place} is a {type(item).__name__}; pass texts, numbers, lists, dicts or None")


def _written_file(item: Mapping[Any, Any]) -> FileValue | None:
    """A file as a model may write it after it has read of one: `{"$file": {"ref": …}}`."""
    match item:
        case {"$file": {"ref": str(ref), **about}} if len(item) == 1 and BLOB_REF.fullmatch(ref):
            details = [
                about.get("media_type", UNKNOWN_MEDIA_TYPE),
                about.get("name", ""),
                about.get("size", 0),
            ]
            match details:
                case [str(media_type), str(name), int(size)] if size >= 0:
                    return FileValue(ref, encodable(media_type), encodable(name), int(size))
    return None


def _loaded(module: str) -> Any:
    return sys.modules.get(module)


def from_value(value: Value) -> Any:
    """The object that the code sees for the value."""
    if isinstance(value, BinaryValue):
        return _READERS[value.form](value.data)
    if isinstance(value, FileValue):
        return File(value)
    if isinstance(value, Mapping):
        return {key: from_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [from_value(part) for part in value]
    return value


def _installed(module: str) -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _image(data: bytes) -> Any:
    pillow = _installed("PIL.Image")
    if pillow is None:
        return RawImage(data)
    try:
        image = pillow.open(io.BytesIO(data))
        image.load()
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for a damaged file
        raw = RawImage(data)
        raw.why = f"Pillow cannot open it: {error}"
        return raw
    return image


def _table(data: bytes) -> Any:
    pandas = _installed("pandas")
    if pandas is None:
        return list(csv.DictReader(io.StringIO(data.decode())))
    # One without columns is a line without a name.
    return pandas.read_csv(io.BytesIO(data)) if data.strip() else pandas.DataFrame()


def _array(data: bytes) -> Any:
    numpy = _installed("numpy")
    return numpy.load(io.BytesIO(data), allow_pickle=False) if numpy else data


_READERS: dict[BinaryForm, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "image": _image,
    "table": _table,
    "array": _array,
}
