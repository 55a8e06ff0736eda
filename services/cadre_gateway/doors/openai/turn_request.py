"""Read what requests of both protocols share: the user, the chat, the content of messages, and whether it is a
repetition.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Request

from cadre.protocol.messages import CallerTerms
from cadre.spec.names import NAME
from cadre_gateway.access.principal import Principal, caller_of
from cadre_gateway.doors.messages import MessageContent, ToldHistory, add_file
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.rulings import PersonsWord
from cadre_gateway.requests.idempotency import IdempotencyKey, checked_key, request_digest
from cadre_gateway.requests.parameters import utf8
from cadre_gateway.requests.problems import invalid

SESSION_HEADERS = ("x-cadre-session", "x-openwebui-chat-id")
END_USER_HEADER = "x-openwebui-user-id"
SESSION_KEYS = ("session", "session_id", "thread_id", "chat_id", "conversation_id")
HANGUP_HEADER = "x-cadre-hangup"

FILE_ID = "file_id:"
"""Begins what stands for the content of a kept file, until the file is looked up."""

MaxTokens = Annotated[int, msgspec.Meta(ge=1)]
"""The most tokens of an answer."""

_OF_THE_ANSWER = ("stream", "stream_options", "background", "include", "store")
_COUNT = re.compile(r"\d{1,4}")

_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")


class Holder(NamedTuple):
    """The principal that files and conversations belong to."""

    owner: str
    """The person, or the key of no person; "" for a caller who is bound to neither, and reaches all of them."""

    def reaches(self, owner: str) -> bool:
        """Return whether the holder may use what this owner keeps."""
        return self.owner in ("", owner)


def holder_of(request: Request) -> Holder:
    """Return whose files and conversations the caller keeps: those of the person for whom it calls, else those of its
    key if that is for some agents only."""
    caller, headers = caller_of(request), request.headers
    if caller.user or caller.scoped:
        return Holder(caller.owner)
    # The gate writes the name of a key into this header; it is no person's then.
    named = utf8(headers.get("cadre-user")) if not caller.key else ""
    person = named or utf8(headers.get(END_USER_HEADER))
    return Holder(f"user {person}" if person else "")


class Envelope(NamedTuple):
    """The parts of a request outside its body."""

    session: str | None
    user: str | None
    by: str
    """The sender of the request, as decisions name them."""
    caller: Principal
    key: IdempotencyKey
    has_own_key: bool
    is_retry: bool
    cancels: bool
    """True if the run ends when the caller hangs up."""
    traceparent: str | None


def envelope_of(request: Request, data: bytes, user: str | None, metadata: dict[str, str]) -> Envelope:
    """Read the headers of the request whose body is `data`, a JSON object. Raises a 422 problem."""
    headers = request.headers
    session = _first(headers.get(name) for name in SESSION_HEADERS) or _first(
        metadata.get(name) for name in SESSION_KEYS
    )
    own = checked_key(headers.get("idempotency-key"))
    caller = caller_of(request)
    named = utf8(headers.get("cadre-user"))  # the gate's own word where it asks who calls
    # A caller that may name no one else acts for its own person, even if its client names another user.
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
        key=IdempotencyKey(caller.owner, own or secrets.token_hex(16), _digest(caller.owner, data, session, who)),
        has_own_key=own is not None,
        is_retry=bool(_COUNT.fullmatch(count)) and int(count) > 0,
        cancels=hangup == "cancel",
        traceparent=headers.get("traceparent"),
    )


def session_name(given: str) -> str:
    """Return a name that sessions may have; the same for the same text."""
    return given if NAME.fullmatch(given) else f"chat-{hashlib.sha256(given.encode()).hexdigest()[:24]}"


def _digest(owner: str, data: bytes, session: str | None, user: str | None) -> str:
    asked: dict[str, Any] = msgspec.json.decode(data)
    content = {key: value for key, value in asked.items() if key not in _OF_THE_ANSWER}
    return request_digest(owner, "openai", [session, user, content])


def _first(values: Any) -> str | None:
    return next((value for value in values if value), None)


def content_of(value: Any, where: str) -> MessageContent:
    """Return the content of a message, which is a text, a list of parts or null. Raises a 422 problem; `where` it
    stands."""
    if value is None:
        return MessageContent()
    if isinstance(value, str):
        return MessageContent(text=value)
    if not isinstance(value, list):
        raise invalid("content must be a string or a list of parts", field=where)
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(value):
        texts += _take(part, found, f"{where}[{index}]")
    found.text = "\n".join(texts)
    return found


def text_of(value: Any, where: str) -> str:
    """Return the text of a content; what else it holds is left out. Raises a 422 problem."""
    return content_of(value, where).text


def _take(part: Any, found: MessageContent, where: str) -> Iterable[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS:
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return [text]
    elif kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(named := part.get("file_id"), str) and url is None:
            url = FILE_ID + named
        if isinstance(url, str):
            found.images.append(url)
            return []
    elif kind in ("file", "input_file"):
        file = part.get("file", part)
        data = file.get("file_data") if isinstance(file, dict) else None
        where_it_is = part.get("file_url")
        if isinstance(where_it_is, str) and where_it_is.startswith(("https:", "http:")):
            return [where_it_is]  # the agent fetches it, if it may
        data = where_it_is if isinstance(where_it_is, str) and where_it_is.startswith("data:") else data
        named = file.get("file_id") if isinstance(file, dict) else None
        if isinstance(named, str) and data is None:
            add_file(found.files, str(file.get("filename") or FILE_ID + named), FILE_ID + named)
            return []
        if isinstance(data, str):
            name = str(file.get("filename") or f"file-{len(found.files) + 1}")
            add_file(found.files, name, data if data.startswith("data:") else f"data:;base64,{data}")
            return []
    raise invalid(
        f"a part of type {kind!r} cannot be used: send text, an image_url, or a file with file_data or file_id",
        field=where,
    )


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The message of the caller, and the history that it brings."""

    agent: str
    text: str = ""
    """"" where the caller says nothing but results and words."""
    images: list[str] = []
    files: dict[str, str] = {}
    instructions: str = ""
    history: ToldHistory
    """The messages besides `text`: the conversation, as the caller has it."""
    mark: str = ""
    """Stands for the history with `text` behind it."""
    results: dict[str, str] = {}
    """Results of the caller's functions, by call; with them the turn goes on with the run of the calls."""
    words: dict[str, PersonsWord] = {}
    """A person's words, by call; see `results`."""
    continues: Place | None = None
    """The run that the turn goes on from, where the caller names it."""
    session: str | None = None
    conversation: str = ""
    """The id of the kept conversation that the turn is part of."""
    extra: list[dict[str, Any]] = []
    """Items that the turn brings to its conversation besides its message, as they are listed there."""
    afresh: bool = False
    """True if the session is not gone on from: the history is all that was said."""
    adds: bool = False
    """True if the history adds to what the named run or session holds; else it is the whole conversation."""
    user: str | None = None
    by: str = ""
    """The sender of the turn, as decisions name them."""
    caller: Principal
    terms: CallerTerms = CallerTerms()
    """The functions of the caller."""
    output_schema: dict[str, Any] | None = None
    metadata: dict[str, str] = {}
    key: IdempotencyKey
    """The caller's own, else one that is new with each request."""
    has_own_key: bool = False
    is_retry: bool = False
    """True if the caller's client says that it has sent the request before."""
    traceparent: str | None = None
