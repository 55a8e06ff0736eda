"""What both protocols read of a request besides its body: whose it is, which chat, and whether it came before."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any, NamedTuple

import msgspec
from fastapi import Request

from cadre.spec.names import NAME
from cadre_gateway.access.principal import Principal, caller_of
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.idempotency import IdempotencyKey, checked_key, request_digest
from cadre_gateway.requests.problems import invalid

SESSION_HEADERS = ("x-cadre-session", "x-openwebui-chat-id")
END_USER_HEADER = "x-openwebui-user-id"
SESSION_KEYS = ("session", "session_id", "thread_id", "chat_id", "conversation_id")
HANGUP_HEADER = "x-cadre-hangup"

_OF_THE_ANSWER = ("stream", "stream_options", "background", "include", "store")
_COUNT = re.compile(r"\d{1,4}")


class Envelope(NamedTuple):
    """What stands around a body."""

    session: str | None
    user: str | None
    by: str
    """Who sent the request, as decisions name them."""
    caller: Principal
    key: IdempotencyKey
    has_own_key: bool
    is_retry: bool
    cancels: bool
    """Whether the run ends when the caller hangs up."""
    traceparent: str | None


def envelope_of(request: Request, data: bytes, user: str | None, metadata: dict[str, str]) -> Envelope:
    """Reads the headers of the request whose body is `data`, a JSON object. Raises a 422 problem."""
    headers = request.headers
    session = _first(headers.get(name) for name in SESSION_HEADERS) or _first(
        metadata.get(name) for name in SESSION_KEYS
    )
    own = checked_key(headers.get("idempotency-key"))
    caller = caller_of(request)
    named = utf8(headers.get("cadre-user"))  # the gate's own word where it asks who calls
    # A caller that may name no one else acts for its own person, whatever its client calls the user.
    who = named if not caller.key else ""
    who = (who or utf8(headers.get(END_USER_HEADER)) or user) if caller.names_users else caller.user or None
    count = headers.get("x-stainless-retry-count", "")
    hangup = headers.get(HANGUP_HEADER, "continue").lower()
    if hangup not in ("continue", "cancel"):
        raise invalid(f"{HANGUP_HEADER}: send `continue` or `cancel`, or leave the header out")
    return Envelope(
        session=session_name(session) if session else None,
        user=who,
        by=named or who or "",
        caller=caller,
        key=IdempotencyKey(
            caller.owner, own or secrets.token_hex(16), _digest(caller.owner, data, session, who)
        ),
        has_own_key=own is not None,
        is_retry=bool(_COUNT.fullmatch(count)) and int(count) > 0,
        cancels=hangup == "cancel",
        traceparent=headers.get("traceparent"),
    )


def session_name(given: str) -> str:
    """A name that sessions may have; the same for the same text."""
    return given if NAME.fullmatch(given) else f"chat-{hashlib.sha256(given.encode()).hexdigest()[:24]}"


def _digest(owner: str, data: bytes, session: str | None, user: str | None) -> str:
    asked: dict[str, Any] = msgspec.json.decode(data)
    content = {key: value for key, value in asked.items() if key not in _OF_THE_ANSWER}
    return request_digest(owner, "openai", [session, user, content])


def _first(values: Any) -> str | None:
    return next((value for value in values if value), None)
