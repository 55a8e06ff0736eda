"""The header Idempotency-Key: the same key of the same caller is the same request, and takes effect once."""

import hashlib
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Header

from cadre.protocol.topology import run_id_of
from cadre_gateway.requests.problems import Problem, invalid

IdempotencyHeader = Annotated[str | None, Header(alias="Idempotency-Key")]

_MAX_KEY_CHARS = 255

_OF_THE_ANSWER = ("stream", "return_full_result")
"""Fields that say how a request is answered, not what it starts."""


class IdempotencyKey(NamedTuple):
    """A key with its owner: the same text of two owners is two keys."""

    owner: str
    """`Principal.owner` of the caller; of a start that no request makes, `schedule NAME` or `trigger NAME`."""
    key: str
    digest: str = ""
    """That of the request that the key came with; "" accepts any request."""

    def run_of(self, agent: str) -> str:
        """Return the id that the run of the agent which the key starts has in the first generation of shards: see
        `KeyedRuns.run_of`."""
        return run_id_of(agent, self.owner, self.key)

    def record_of(self, run: str, what: str) -> str:
        """Return the id of the record that the key sends to the run; `what` names the kind of record."""
        own = hashlib.sha256(f"{self.owner}\n{self.key}".encode()).hexdigest()[:32]
        return f"{run}:{what}:{own}"

    def check(self, digest: str) -> None:
        """Raise a 422 problem unless `digest` is that of this request, or "": unknown."""
        if digest not in ("", self.digest):
            raise Problem(
                422,
                "idempotency-key-reused",
                f"another request of yours has started a run with the Idempotency-Key {self.key!r}: send that request"
                " again as it was, or this one with another key",
            )


def checked_key(header: str | None) -> str | None:
    """Return the key, if there is one. Raises a 422 problem for an unusable one."""
    if header is not None and not 0 < len(header) <= _MAX_KEY_CHARS:
        raise invalid(f"Idempotency-Key: send 1 to {_MAX_KEY_CHARS} characters, or leave the header out")
    return header


def owned_key(owner: str, header: str | None) -> IdempotencyKey | None:
    """Return the owner's key, None without one. Raises a 422 problem for an unusable one."""
    key = checked_key(header)
    return None if key is None else IdempotencyKey(owner, key)


def idempotency_key(owner: str, header: str | None, what: str, body: bytes) -> IdempotencyKey | None:
    """Return the owner's key of a request for `what`, whose `body` is a JSON object; None without one. Raises a 422
    problem for an unusable key."""
    key = owned_key(owner, header)
    if key is None:
        return None
    asked = msgspec.json.decode(body)
    for name in _OF_THE_ANSWER:
        asked.pop(name, None)
    return key._replace(digest=request_digest(owner, what, asked))


def request_digest(owner: str, what: str, content: object) -> str:
    """Return the digest of a request for `what`, whose `content` can be written as JSON; the order of keys does not
    matter."""
    told = msgspec.json.encode([owner, what, content], order="sorted")
    return hashlib.sha256(told).hexdigest()
