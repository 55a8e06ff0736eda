"""Lengths of time and points in time, as people write them: `90s`, `2h`, `3 days`, `2026-03-29T08:00+02:00`."""

import re
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from msgspec import inspect

from cadre.errors import SpecError
from cadre.protocol.usage import LENGTH_OF_TIME
from cadre.structs import Checked, shape_of

Length = float | str
"""A length of time as people write it: seconds, or a text such as `90s`, `10m`, `2h` or `3d`."""

MAX_SECONDS = 10 * 365 * 86_400.0
"""The longest that a length of time of a request, schedule or trigger may be: ten years."""

_UNITS = {
    "": 1.0, "s": 1.0, "second": 1.0, "m": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "w": 604_800.0, "week": 604_800.0,
}  # fmt: skip
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*?)s?")


def seconds_of(length: Length) -> float:
    """A length of time in seconds. Raises ValueError for anything else."""
    if isinstance(length, int | float) and not isinstance(length, bool):
        found: float | None = float(length)
    else:
        match = _LENGTH.fullmatch(str(length).strip().lower())
        unit = _UNITS.get(match[2]) if match else None
        found = float(match[1]) * unit if match and unit is not None else None
    if found is None or not 0 <= found < float("inf"):
        raise ValueError(f"{length!r} is no length of time: write seconds, or a text such as 90s, 15m, 2h or 3d")
    return found


def checked_seconds(key: str, length: Length, least: float = 0.0) -> float:
    """Return the seconds of a length of time. Raise SpecError, which names `key`, for one that is invalid, shorter than
    `least` seconds or longer than ten years."""
    try:
        seconds = seconds_of(length)
    except ValueError as error:
        raise SpecError(str(error), key=key) from error
    if not least <= seconds <= MAX_SECONDS:
        raise SpecError(f"{length} must be at least {least:g} s and at most ten years", key=key)
    return seconds


def with_seconds(data: Any, shape: inspect.Type, place: str = "") -> Any:
    """Return what a file holds with seconds for each length of time that it writes as text, where its type `shape` has
    one. Raise SpecError, which names the place, for a text that is no length of time."""
    match shape:
        case inspect.Metadata(extra=dict(extra)) if LENGTH_OF_TIME in extra and isinstance(data, str):
            try:
                return seconds_of(data)
            except ValueError as error:
                raise SpecError(str(error), key=place) from error
        case inspect.Metadata(type=inner):
            return with_seconds(data, inner, place)
        case inspect.UnionType(types=several):
            return reduce(lambda found, one: with_seconds(found, one, place), several, data)
        case inspect.StructType(fields=fields) if isinstance(data, dict):
            types = {field.encode_name: field.type for field in fields}
        case inspect.DictType(value_type=inner) if isinstance(data, dict):
            types = dict.fromkeys(data, inner)
        case inspect.ListType(item_type=inner) if isinstance(data, list):
            return [with_seconds(one, inner, f"{place}[{index}]") for index, one in enumerate(data)]
        case _:
            return data
    return {
        key: with_seconds(value, types[key], f"{place}.{key}".lstrip(".")) if key in types else value
        for key, value in data.items()
    }


class WithLengths(Checked):
    """Checks a struct that Python makes, and reads lengths of time in it as files have them."""

    def read(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields in JSON types with seconds for each length of time. Raises SpecError."""
        found: dict[str, Any] = with_seconds(fields, shape_of(cls))
        return found


def unix_of(moment: float | str) -> float:
    """A point in time in Unix seconds; one that names no zone is in UTC. Raises ValueError for anything else."""
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return float(moment)
    try:
        found = datetime.fromisoformat(str(moment).strip())
    except ValueError as error:
        raise ValueError(
            f"{moment!r} is no point in time: write Unix seconds, or a text such as 2026-03-29T08:00+02:00"
        ) from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
