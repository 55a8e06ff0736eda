"""Lengths of time and points in time, as people write them: `90s`, `2h`, `3 days`, `2026-03-29T08:00+02:00`."""

import re
from datetime import UTC, datetime

_UNITS = {
    "": 1.0, "s": 1.0, "second": 1.0, "m": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "w": 604_800.0, "week": 604_800.0,
}  # fmt: skip
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*?)s?")


def seconds_of(length: float | str) -> float:
    """A length of time in seconds. Raises ValueError for what is none."""
    if isinstance(length, int | float) and not isinstance(length, bool):
        found: float | None = float(length)
    else:
        match = _LENGTH.fullmatch(str(length).strip().lower())
        unit = _UNITS.get(match[2]) if match else None
        found = float(match[1]) * unit if match and unit is not None else None
    if found is None or not 0 <= found < float("inf"):
        raise ValueError(
            f"{length!r} is no length of time: write seconds, or a text such as 90s, 15m, 2h or 3d"
        )
    return found


def unix_of(moment: float | str) -> float:
    """A point in time in Unix seconds; one that names no zone is in UTC. Raises ValueError for what is none."""
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return float(moment)
    try:
        found = datetime.fromisoformat(str(moment).strip())
    except ValueError as error:
        raise ValueError(
            f"{moment!r} is no point in time: write Unix seconds, or a text such as 2026-03-29T08:00+02:00"
        ) from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
