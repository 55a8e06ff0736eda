"""Python objects of the code to values that travel, and back: images, tables and arrays as bytes of a known form."""

from __future__ import annotations

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
from pathlib import PurePath
from typing import Any

from cadre_sandbox.given import Form, Given, Value, encodable

_DEEPEST = 100


class NotAValue(TypeError):
    """The object cannot leave the interpreter; the message says where in it and what to do."""


def to_value(item: Any, place: str = "it", depth: int = 0) -> Value:
    """Raises NotAValue."""
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
    if depth >= _DEEPEST:
        raise NotAValue(f"{place} is nested more than {_DEEPEST} deep")
    if isinstance(item, Mapping):
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
    if isinstance(item, bytes | bytearray | memoryview):
        return Given("bytes", bytes(item))
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
        return Given("image", file.getvalue())
    if (pandas := _loaded("pandas")) and isinstance(item, pandas.DataFrame):
        return Given("table", item.to_csv(index=False).encode())
    if (pandas := _loaded("pandas")) and isinstance(item, pandas.Series | pandas.Index):
        return to_value(item.tolist(), place, depth + 1)
    if (numpy := _loaded("numpy")) and isinstance(item, numpy.ndarray | numpy.generic):
        return to_value(item.tolist(), place, depth + 1)
    raise NotAValue(f"{place} is a {type(item).__name__}; pass texts, numbers, lists, dicts or None")


def _loaded(module: str) -> Any:
    return sys.modules.get(module)


def from_value(value: Value) -> Any:
    """What the code sees."""
    if isinstance(value, Given):
        return _READERS[value.form](value.data)
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
    return pillow.open(io.BytesIO(data)) if pillow else data


def _table(data: bytes) -> Any:
    pandas = _installed("pandas")
    return pandas.read_csv(io.BytesIO(data)) if pandas else list(csv.DictReader(io.StringIO(data.decode())))


def _array(data: bytes) -> Any:
    numpy = _installed("numpy")
    return numpy.load(io.BytesIO(data), allow_pickle=False) if numpy else data


_READERS: dict[Form, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "image": _image,
    "table": _table,
    "array": _array,
}
