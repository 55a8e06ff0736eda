"""The header Idempotency-Key: the same key is the same request, and starts one run."""

import hashlib
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Header

from cadre_gateway.requests.problems import Problem, invalid

IdempotencyHeader = Annotated[str | None, Header(alias="Idempotency-Key")]

_MAX_KEY_CHARS = 255

_OF_THE_ANSWER = ("stream", "return_full_result")
"""Fields that say how a request is answered, not what it starts."""


class IdempotencyKey(NamedTuple):
    """A key, and the digest of the request that it came with."""

    key: str
    digest: str

    def check(self, digest: str) -> None:
        """Raises a 422 problem unless `digest` is that of this request, or "": unknown."""
        if digest not in ("", self.digest):
            raise Problem(
                422,
                "idempotency-key-reused",
                f"another request has started a run with the Idempotency-Key {self.key!r}: send that request again as"
                " it was, or this one with a key of its own",
            )


def checked_key(header: str | None) -> str | None:
    """The key, if there is one. Raises a 422 problem for an unusable one."""
    if header is not None and not 0 < len(header) <= _MAX_KEY_CHARS:
        raise invalid(f"Idempotency-Key: send 1 to {_MAX_KEY_CHARS} characters, or leave the header out")
    return header


def idempotency_key(header: str | None, what: str, body: bytes) -> IdempotencyKey | None:
    """The key of a request for `what`, whose `body` is a JSON object. Raises a 422 problem for an unusable key."""
    key = checked_key(header)
    if key is None:
        return None
    asked = msgspec.json.decode(body)
    for name in _OF_THE_ANSWER:
        asked.pop(name, None)
    content = msgspec.json.encode(asked, order="sorted")
    return IdempotencyKey(key, hashlib.sha256(f"{what}\n".encode() + content).hexdigest())
