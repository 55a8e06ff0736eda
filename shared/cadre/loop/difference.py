"""Two values of the same shape, compared field by field, as lines that a person can read."""

import math
from typing import Any

import msgspec

_LONGEST = 160
_ABSENT: Any = object()


def plain(value: Any) -> Any:
    """Return a value of messages, events or state as JSON types, with its fields that have their defaults; None within
    it is left out."""
    if isinstance(value, msgspec.Struct):
        return _tag(value) | {name: _within(getattr(value, name)) for name in value.__struct_fields__}
    return _within(value)


def _within(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = {name: _within(getattr(value, name)) for name in value.__struct_fields__}
        return _tag(value) | {name: one for name, one in fields.items() if one is not None}
    if isinstance(value, dict):
        return {str(key): _within(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_within(one) for one in value]
    return msgspec.to_builtins(value, order="deterministic")


def _tag(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    return {config.tag_field: config.tag} if config.tag_field is not None else {}


def differences(was: Any, now: Any, path: str = "") -> list[str]:
    """Return a line for each place where `now` differs from `was`.

    Numbers with a fraction agree when they differ by rounding only.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        return _of_objects(was, now, path)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            line
            for index, (old, new) in enumerate(zip(was, now, strict=True))
            for line in differences(old, new, f"{path}[{index}]")
        ]
    if was == now or _close(was, now):
        return []
    return [f"{path or 'value'}: journaled {_short(was)}, now {_short(now)}"]


def _of_objects(was: dict[str, Any], now: dict[str, Any], path: str) -> list[str]:
    lines: list[str] = []
    for key in [*was, *(key for key in now if key not in was)]:
        where = f"{path}.{key}" if path else key
        lines += differences(was.get(key, _ABSENT), now.get(key, _ABSENT), where)
    return lines


def _close(was: Any, now: Any) -> bool:
    numbers = isinstance(was, float) or isinstance(now, float)
    if not numbers or not isinstance(was, float | int) or not isinstance(now, float | int):
        return False
    return math.isclose(was, now, rel_tol=1e-9, abs_tol=1e-5)


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
