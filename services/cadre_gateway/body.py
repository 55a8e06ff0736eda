"""Request bodies: what they may hold, and one clear line about what is wrong with them."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Request

from cadre.errors import SpecError
from cadre.specs import check_name
from cadre_gateway.problems import Problem, invalid

MAX_BODY = 16 * 1024 * 1024

B = TypeVar("B", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs."""

    agent: str
    task: str
    additional_args: dict[str, Any] = {}
    images: list[str] = []
    """`data:` URLs with base64, `https:` URLs, or `blob:<sha256>` references."""
    max_steps: Annotated[int, msgspec.Meta(ge=1)] | None = None
    session: str | None = None
    reset: bool = True
    """false: go on with the memory of the session's last run of this agent."""
    stream: bool = False
    return_full_result: bool = False


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{id}/cancel; it may be left out."""

    reason: str = ""


async def read(request: Request, limit: int = MAX_BODY) -> bytes:
    """The whole body. Raises a 413 problem as soon as it is over `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise _too_large(limit)
    return bytes(data)


def parse(data: bytes, kind: type[B]) -> B:
    """Raises a 400 problem for what is not JSON, a 422 problem naming the field for what does not fit."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown:
            known = ", ".join(kind.__struct_fields__)
            raise invalid(f"unknown key {unknown[1]!r}; known keys: {known}") from error
        raise invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise invalid(f"the body must be a JSON object: {error}", status=400) from error
    except RecursionError as error:
        raise invalid("the body is nested too deeply: send less than 900 levels", status=400) from error


def submission(data: bytes) -> Submission:
    """A checked Submission. Raises a problem."""
    found = parse(data, Submission)
    if not found.task.strip():
        raise invalid("task is empty: say what the agent shall do")
    if found.session is not None:
        name("session", found.session)
    elif not found.reset:
        raise invalid("reset=false goes on with a session: name it in `session`")
    return found


def name(what: str, value: str) -> None:
    try:
        check_name(what, value)
    except SpecError as error:
        raise invalid(str(error)) from error


def _too_large(limit: int) -> Problem:
    detail = f"a body may have {limit} bytes; send large images as https: URLs or blob: references"
    return Problem(413, "too-large", detail)
