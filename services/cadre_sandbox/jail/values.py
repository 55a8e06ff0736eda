"""Convert Python objects of the code to values that travel, images and tables of pandas included, and back
(docs/code-agents.md#values)."""

import array
import collections
import csv
import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import io
import math
import re
import sys
import uuid
from collections.abc import Callable, Hashable, ItemsView, KeysView, Mapping, ValuesView
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from cadre_sandbox.wire.values import (
    BINARY_MARKER,
    BLOB_REF,
    UNKNOWN_MEDIA_TYPE,
    BinaryForm,
    BinaryValue,
    FileValue,
    TaggedValue,
    Value,
    dump,
    encodable,
    load,
)

_MAX_DEPTH = 100

_TAGGED_DEPTH = 4
"""Levels of JSON that a dict of pairs takes."""

_LISTS = (list, tuple, set, frozenset, range, collections.deque, KeysView, ValuesView, ItemsView, array.array)
"""The types that arrive as a list."""

_TEXT_KEYS = (str, int, float, bool, datetime.date)
"""The types that arrive as a text when used as a key."""

_IN_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}

_IN_TIFF = {"CMYK": "RGB", "F": "L", "I": "L"}
"""Modes that TIFF has and PNG lacks, and the mode of the PNG."""


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
        """Return the content. Raises ValueError for a file that is too large to be read here."""
        if self._given.data is None:
            raise ValueError(f"{self!r} is too large to be read here: pass it to a tool")
        return self._given.data

    def text(self) -> str:
        """Return the content as text. Raises ValueError for what is not UTF-8, or too large."""
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
    """Return the object as a value that can leave the interpreter; `place` names it in errors. Raises NotAValue."""
    if isinstance(item, enum.Enum):
        return to_value(item.value, place, depth)
    if isinstance(item, str):
        return encodable(str(item))
    if item is None or isinstance(item, bool):
        return item
    try:
        return _number(item) if isinstance(item, int | float) else _composite(item, place, depth)
    except ValueError as error:
        raise NotAValue(f"{place} {error}") from None


def _number(item: int | float) -> Value:
    return integer(int(item)) if isinstance(item, int) else real(float(item))


def _composite(item: Any, place: str, depth: int) -> Value:
    if depth >= _MAX_DEPTH:
        raise NotAValue(f"{place} is nested more than {_MAX_DEPTH} deep")
    if isinstance(item, Mapping):
        file = _written_file(item)
        return _mapping(item, place, depth) if file is None else file
    if isinstance(item, _LISTS):
        return [to_value(part, f"{place}[{index}]", depth + 1) for index, part in enumerate(item)]
    return _special(item, place, depth)


def _mapping(item: Mapping[Any, Any], place: str, depth: int) -> Value:
    """Return an object if the texts of the keys are distinct, else the pairs."""
    if all(key is None or isinstance(key, _TEXT_KEYS) for key in item):
        keys = {encodable(str(key)): key for key in item}
        if len(keys) == len(item):
            return {text: to_value(item[key], f"{place}[{key!r}]", depth + 1) for text, key in keys.items()}
    pairs: list[list[Value]] = []
    for key, part in item.items():
        where = f"{place}[{key!r}]"
        pairs.append([_key(key, where, depth), to_value(part, where, depth + _TAGGED_DEPTH)])
    if len({repr(pair[0]) for pair in pairs}) < len(item):
        raise NotAValue(f"different keys of {place} would become one; use texts, numbers or tuples as keys")
    return TaggedValue("dict", pairs)


def _key(key: Hashable, place: str, depth: int) -> Value:
    """Return the key so that it is one again: a tuple does not become a list."""
    if isinstance(key, tuple | frozenset):
        if depth >= _MAX_DEPTH:
            raise NotAValue(f"{place} is nested more than {_MAX_DEPTH} deep")
        parts: list[Value] = [_key(part, place, depth + 2) for part in key]
        return TaggedValue("tuple" if isinstance(key, tuple) else "frozenset", parts)
    value = to_value(key, place, depth + _TAGGED_DEPTH)
    if isinstance(value, list | dict | FileValue):
        raise NotAValue(f"the key of {place} is a {type(key).__name__}; use texts, numbers or tuples as keys")
    return value


def _special(item: Any, place: str, depth: int) -> Value:
    if isinstance(item, File):
        return replace(item._given, data=None)
    if isinstance(item, RawImage):
        return BinaryValue("image", bytes(item))
    if isinstance(item, bytes | bytearray | memoryview):
        return BinaryValue("bytes", bytes(item))
    if (number := scalar(item)) is not None:
        return number
    if (pandas := _loaded("pandas")) and (item is pandas.NaT or item is pandas.NA):
        return None
    if isinstance(item, datetime.date | datetime.time):
        return item.isoformat()
    if isinstance(item, decimal.Decimal | PurePath | uuid.UUID):
        return str(item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        fields = dataclasses.fields(item)
        return {f.name: to_value(getattr(item, f.name), f"{place}.{f.name}", depth + 1) for f in fields}
    if (image := _loaded("PIL.Image")) and isinstance(item, image.Image):
        return BinaryValue("image", *to_files(item))
    if pandas and isinstance(item, pandas.DataFrame | pandas.Series):
        return _table(item, pandas, place, depth)
    if pandas and isinstance(item, pandas.Index):
        return to_value(item.tolist(), place, depth + 1)
    if (numpy := _loaded("numpy")) and isinstance(item, numpy.ndarray | numpy.generic):
        if item.dtype.kind in "mM":
            item = numpy.datetime_as_string(item) if item.dtype.kind == "M" else _durations(item)
        return to_value(item.tolist(), place, depth + 1)
    raise NotAValue(f"{place} is a {type(item).__name__}; pass texts, numbers, lists, dicts or None")


def _durations(item: Any) -> Any:
    whole = item.astype("m8[us]")
    if not ((whole == item) | (item != item)).all():
        raise ValueError("has durations below a microsecond; pass them as numbers")
    return whole


def _table(table: Any, pandas: Any, place: str, depth: int) -> Value:
    if isinstance(table, pandas.Series) and has_plain_index(table, pandas):
        return to_value(table.tolist(), place, depth + 1)
    data = to_csv(table, pandas)
    if is_all_in_csv(table, data, pandas):
        return BinaryValue("table", data)

    def encode(item: Any, where: str) -> Value:
        return _key(item, where, depth + _TAGGED_DEPTH) if isinstance(item, tuple) else to_value(item, where)

    return BinaryValue("table", data, dump(to_parts(table, pandas, encode, place)))


def _written_file(item: Mapping[Any, Any]) -> FileValue | None:
    """Return a file as a model may write it after it has read of one: `{"$file": {"ref": …}}`."""
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
    """Return the object that the code sees for the value."""
    if isinstance(value, BinaryValue):
        return _READERS[value.form](value)
    if isinstance(value, TaggedValue):
        try:
            return read(value, from_value)
        except (ValueError, TypeError, OverflowError):
            # No code has written it.
            return {BINARY_MARKER: [value.form, from_value(value.content)]}
    if isinstance(value, FileValue):
        return File(value)
    if isinstance(value, Mapping):
        return {key: from_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [from_value(part) for part in value]
    return value


def _installed(module: str) -> Any:
    """Return the module, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _image(value: BinaryValue) -> Any:
    data = value.data if value.exact is None else value.exact
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


def _read_table(value: BinaryValue) -> Any:
    pandas = _installed("pandas")
    if pandas is None:
        return list(csv.DictReader(io.StringIO(value.data.decode())))
    if value.exact is not None:
        try:
            return of_parts(from_value(load(value.exact)), pandas, _installed("numpy"))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            pass  # no code has written it
    return read_csv(value.data, pandas)


def _array(value: BinaryValue) -> Any:
    numpy = _installed("numpy")
    return numpy.load(io.BytesIO(value.data), allow_pickle=False) if numpy else value.data


def _large(value: BinaryValue) -> Any:
    try:
        return from_value(load(value.data))
    except (ValueError, RecursionError):
        return value.data  # no code has written it


_READERS: dict[BinaryForm, Callable[[BinaryValue], Any]] = {
    "bytes": lambda value: value.data,
    "image": _image,
    "table": _read_table,
    "array": _array,
    "json": _large,
}


def to_files(image: Any) -> tuple[bytes, bytes | None]:
    """Return the image as PNG, and as TIFF where the PNG is not all of it. Raises ValueError for a mode that neither
    has."""
    if image.mode in _IN_PNG:
        return _file(image, "PNG"), None
    if image.mode not in _IN_TIFF:
        raise ValueError(f"is an image of mode {image.mode}; convert it: image.convert('RGB')")
    return _file(image.convert(_IN_TIFF[image.mode]), "PNG"), _file(image, "TIFF")


def _file(image: Any, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format=form)
    return file.getvalue()


_MAX_PLAIN_BITS = 1_000
"""Bits of an integer that every reader of JSON takes."""

_DURATION = re.compile(r"(-?)P(\d+)DT(\d+)\.(\d+)S")


def integer(number: int) -> Value:
    """Return the integer; one that readers of JSON refuse as its digits. Raises ValueError beyond 4,000 of them."""
    if number.bit_length() <= _MAX_PLAIN_BITS:
        return number
    return TaggedValue("int", _digits(number))


def real(number: float) -> Value:
    """Return the number; NaN and infinities by their names."""
    return number if math.isfinite(number) else TaggedValue("float", str(number))


def scalar(item: object) -> TaggedValue | None:
    """Return a complex number, a fraction or a duration as its text; None for anything else. Raises ValueError for a
    fraction of more than 4,000 digits."""
    if isinstance(item, complex):
        return TaggedValue("complex", str(complex(item)).strip("()"))
    if isinstance(item, fractions.Fraction):
        return TaggedValue("fraction", f"{_digits(item.numerator)}/{_digits(item.denominator)}")
    if isinstance(item, datetime.timedelta):
        if getattr(item, "nanoseconds", 0):  # a Timedelta of pandas
            raise ValueError("has durations below a microsecond; pass them as numbers")
        size = abs(item)
        text = f"P{size.days}DT{size.seconds}.{size.microseconds:06}S"
        return TaggedValue("timedelta", f"-{text}" if item.days < 0 else text)
    return None


def _digits(number: int) -> str:
    if number.bit_length() > 13_000:
        raise ValueError("has more than 4,000 digits; pass its text, in parts")
    return str(number)


def read(value: TaggedValue, inner: Callable[[Value], Any]) -> Any:
    """Return the object that the value stands for; `inner` reads what is in it. Raises ValueError or TypeError for
    content that no code has written."""
    content: Any = value.content
    match value.form:
        case "tuple":
            return tuple(map(inner, content))
        case "frozenset":
            return frozenset(map(inner, content))
        case "dict":
            return {inner(key): inner(item) for key, item in content}
        case "timedelta":
            return _duration(content)
    return _NUMBERS[value.form](content)


_NUMBERS: dict[str, Callable[[str], object]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "fraction": fractions.Fraction,
}


def _duration(text: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"no duration: {text}")
    size = datetime.timedelta(days=int(found[2]), seconds=int(found[3]), microseconds=int(found[4]))
    return -size if found[1] else size


Encode = Callable[[Any, str], Value]
"""Makes a value of a cell or label; the text names its place in errors. Raises what `to_value` does."""

_TEXTS = ("object", "str", "string")


def has_plain_index(table: Any, pandas: Any) -> bool:
    """Return whether the rows are merely counted from 0."""
    index = table.index
    return isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1 and index.name is None


def to_csv(table: Any, pandas: Any) -> bytes:
    """Return the CSV of a frame or series; its index is in the first columns unless the rows are merely counted."""
    text: str = table.to_csv(index=not has_plain_index(table, pandas))
    return text.encode(errors="replace")


def read_csv(data: bytes, pandas: Any) -> Any:
    """Return the frame of a CSV."""
    # One without columns is a line without a name.
    if not data.strip():
        return pandas.DataFrame()
    return pandas.read_csv(io.BytesIO(data), float_precision="round_trip")


def is_all_in_csv(table: Any, data: bytes, pandas: Any) -> bool:
    """Return whether the CSV is read as the very same frame."""
    if not isinstance(table, pandas.DataFrame) or not has_plain_index(table, pandas):
        return False
    try:
        same = read_csv(data, pandas)
        pandas.testing.assert_frame_equal(same, table, check_exact=True, check_column_type="exact")
    except (AssertionError, TypeError, ValueError):
        return False
    return not any(isinstance(label, tuple) for label in table.columns)


def to_parts(table: Any, pandas: Any, encode: Encode, place: str) -> dict[str, Value]:
    """Return all of a frame or series. Raises ValueError for a type of column that does not travel."""
    if isinstance(table, pandas.Series):
        own: dict[str, Value] = {"name": encode(table.name, place), "columns": None}
        columns = [(place, table)]
    else:
        own = {"name": None, "columns": _index(table.columns, pandas, encode, place)}
        columns = [(f"{place}[{label!r}]", table.iloc[:, at]) for at, label in enumerate(table.columns)]
    cells: list[Value] = [_cells(column.array, encode, where) for where, column in columns]
    return {**own, "index": _index(table.index, pandas, encode, place), "cells": cells}


def of_parts(parts: Any, pandas: Any, numpy: Any) -> Any:
    """Return the frame or series of these parts, whose values are objects again."""
    index = _read_index(parts["index"], pandas, numpy)
    columns = [_read_cells(cells, pandas, numpy) for cells in parts["cells"]]
    if parts["columns"] is None:
        return pandas.Series(columns[0], index=index, name=parts["name"])
    labels = _read_index(parts["columns"], pandas, numpy)
    frame = pandas.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = labels
    return frame


def _index(index: Any, pandas: Any, encode: Encode, place: str) -> Value:
    names = [encode(name, place) for name in index.names]
    if isinstance(index, pandas.RangeIndex):
        return {"names": names, "range": [index.start, index.stop, index.step]}
    levels = [index.get_level_values(level).array for level in range(index.nlevels)]
    is_multiple = isinstance(index, pandas.MultiIndex)
    cells: list[Value] = [_cells(one, encode, f"the index of {place}") for one in levels]
    return {"names": names, "multiple": is_multiple, "levels": cells}


def _read_index(parts: Any, pandas: Any, numpy: Any) -> Any:
    names = parts["names"]
    if "range" in parts:
        return pandas.RangeIndex(*parts["range"], name=names[0])
    levels = [_read_cells(cells, pandas, numpy) for cells in parts["levels"]]
    if parts["multiple"]:
        return pandas.MultiIndex.from_arrays(levels, names=names)
    index = pandas.Index(levels[0], dtype=levels[0].dtype)
    return index.rename(names[0])


def _cells(array: Any, encode: Encode, place: str) -> Value:
    """Return the cells of a column with the name of their type. Raises ValueError for one that does not travel."""
    dtype = array.dtype
    name = str(dtype)
    if name == "category":
        return {
            "type": name,
            "codes": [int(code) for code in array.codes],
            "categories": _cells(array.categories.array, encode, place),
            "ordered": bool(array.ordered),
        }
    if dtype.kind in "mM" and hasattr(array, "asi8"):
        return {"type": name, "cells": [int(one) for one in array.asi8]}
    if name in _TEXTS:
        kept = [None if name != "object" and item != item else item for item in _items(array)]
        return {"type": name, "cells": [encode(item, f"{place}[{row}]") for row, item in enumerate(kept)]}
    if dtype.kind in "biufc" and "[" not in name:
        return {"type": name, "cells": [encode(item, place) for item in array.tolist()]}
    raise ValueError(f"has values of type {name} in {place}; convert them first, with .astype(str)")


def _items(array: Any) -> list[Any]:
    return [None if type(item).__name__ == "NAType" else item for item in array]


def _read_cells(parts: Any, pandas: Any, numpy: Any) -> Any:
    name = parts["type"]
    if name == "category":
        categories = pandas.Index(_read_cells(parts["categories"], pandas, numpy))
        return pandas.Categorical.from_codes(parts["codes"], categories, ordered=parts["ordered"])
    cells = parts["cells"]
    if name.startswith(("datetime64", "timedelta64")):
        return _times(name, cells, pandas, numpy)
    if name == "object":
        objects = numpy.empty(len(cells), dtype=object)
        objects[:] = cells
        return objects
    is_pandas = name[0].isupper() or name in (*_TEXTS, "boolean")
    return pandas.array(cells, dtype=name) if is_pandas else numpy.array(cells, dtype=name)


def _times(name: str, counts: list[int], pandas: Any, numpy: Any) -> Any:
    """Return the times or durations of the type, such as `datetime64[us, UTC]`, counted in its unit."""
    kind, _, rest = name.partition("[")
    unit, _, zone = rest.removesuffix("]").partition(", ")
    column = pandas.Series(numpy.array(counts, dtype="int64").view(f"{kind}[{unit}]"))
    return (column.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else column).array
