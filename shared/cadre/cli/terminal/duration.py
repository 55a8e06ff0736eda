"""A length of time as people write it: 90, 90s, 10m, 2h, 3d."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


class Duration(click.ParamType[float]):
    """An option that takes a length of time above 0; its value is in seconds."""

    name = "seconds"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds that the text stands for."""
        found = _WRITTEN.fullmatch(str(value))
        seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
        if seconds <= 0:
            self.fail(f"{value!r} is no length of time: write seconds, or 10m, 2h, 3d", param, ctx)
        return seconds
