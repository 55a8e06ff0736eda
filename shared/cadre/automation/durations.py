"""Lengths of time as people write them: seconds as a number, or `90s`, `10m`, `2h`, `3d`."""

import re

from cadre.errors import SpecError

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")

MAX_SECONDS = 10 * 365 * 86_400.0
"""No length of time here may be longer than ten years."""


def seconds_of(key: str, written: float | str, least: float = 0.0) -> float:
    """Seconds that a length of time stands for. Raises SpecError, which names `key`, for what is none or too short."""
    found = _WRITTEN.fullmatch(str(written).strip())
    if found is None:
        raise SpecError(f"{key}: {written!r} is no length of time: write seconds, or 90s, 10m, 2h, 3d")
    seconds = float(found[1]) * _UNIT_SECONDS[found[2] or "s"]
    if not least <= seconds <= MAX_SECONDS:
        raise SpecError(f"{key}: {written} must be at least {least:g} s and at most ten years")
    return seconds
