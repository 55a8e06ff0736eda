"""Answers as JSON."""

from typing import Any

import msgspec
from fastapi.responses import Response


def json_answer(value: Any, status: int = 200) -> Response:
    """The value as the body of an answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
