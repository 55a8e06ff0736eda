"""Answers of smolagents as JSON that distinguishes values; this module runs in its environment.

{"float": "nan"} {"complex": "1+2j"} {"fraction": "1/3"} {"timedelta": seconds} {"bytes": hex}
{"dict": [[key, value], …]} {"table": csv} {"image": [mode, size, pixels in hex]}
"""

import datetime
import io
import json
import math
import sys
from collections import deque
from collections.abc import Mapping, Set
from fractions import Fraction
from typing import Any

from PIL import Image


def plain(value: Any) -> Any:
    """Return what an agent of smolagents answers: a Python value."""
    # An image of the agent's own kind is one of Pillow without anything in it.
    value = value.to_raw() if hasattr(value, "to_raw") else value
    match value:
        case None | bool() | str():
            return str(value) if isinstance(value, str) else value
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case int() | float():
            return value
        case complex():
            return {"complex": str(value).strip("()")}
        case Fraction():
            return {"fraction": str(value)}
        case datetime.timedelta():
            return {"timedelta": value.total_seconds()}
        case datetime.date():
            return value.isoformat()
        case bytes():
            return {"bytes": value.hex()}
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case Mapping():
            return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
        case list() | tuple() | deque() | Set():
            return [plain(item) for item in value]
        case Image.Image():
            return image(value)
    if hasattr(value, "to_csv"):
        return {"table": value.to_csv()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"no form for {type(value)}")


def image(value: Image.Image) -> dict[str, Any]:
    return {"image": [value.mode, list(value.size), value.tobytes().hex()]}


if __name__ == "__main__":
    # A picture that Cadre's side wants to be read.
    json.dump(image(Image.open(io.BytesIO(sys.stdin.buffer.read()))), sys.stdout)
