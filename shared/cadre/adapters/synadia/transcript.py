"""What an agent has answered to a prompt, told from the messages that its reply subject holds: the same messages always
give the same."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from synadia_ai.agents import Attachment, ProtocolError, ResponseChunk, StatusChunk
from synadia_ai.agents.messages import QueryChunk, decode_chunk

from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.tools.files import File

PROMPT, UNTAKEN, REPLIED = "prompt", "untaken", "replied"
"""The marks that executors leave beside the agent's own messages: last words of subjects."""

ERROR_CODE, _ERROR = "Nats-Service-Error-Code", "Nats-Service-Error"
_OF_THE_STREAM = frozenset(
    f"nats-{name}"
    for name in (
        "stream",
        "subject",
        "sequence",
        "time-stamp",
        "num-pending",
        "last-sequence",
        "up-to-sequence",
    )
)
BUSY = ("409", "429")
"""Codes by which an agent says, before anything else, that it may take the prompt later."""
_REFUSED = ("400", "401", "403", "404")
_MOST_INLINE_BYTES = 32 * 1024
_MOST_TEXT_CHARS = 2_000
_MOST_AT_ONCE = 400


class Replied(msgspec.Struct, frozen=True):
    """A person's word that was passed on."""

    query: str
    message: str


class PromptTranscript:
    """The newest attempt at a prompt, as far as its messages were taken in, in stream order."""

    def __init__(self) -> None:
        self.seq = 0
        """Of the last message."""
        self.attempts = 0
        self.envelope = b""
        """What the agent is prompted with."""
        self.replied: set[str] = set()
        """Ids of a person's messages that were passed on."""
        self._begin()

    def _begin(self) -> None:
        self.is_untaken = False
        self.has_spoken = False
        self.is_over = False
        self.error: tuple[str, str] | None = None
        """Code and words of an error that has ended the answer."""
        self.queries: dict[str, QueryChunk] = {}
        """What it asks and nobody has answered, by id."""
        self._texts: list[tuple[int, str]] = []
        self._statuses: list[tuple[int, str]] = []
        self._attachments: list[Attachment] = []

    @property
    def is_begun(self) -> bool:
        """Whether the agent was prompted, or may have been."""
        return self.attempts > 0 and not self.is_untaken

    def take(self, message: StoredMessage) -> None:
        """Takes the next message in."""
        self.seq = message.seq
        *_, attempt, mark = message.subject.split(".")
        if mark == PROMPT:
            self._begin()
            self.attempts, self.envelope = int(attempt), message.data
        elif mark == UNTAKEN:
            self.is_untaken = True
        elif mark == REPLIED:
            told = msgspec.json.decode(message.data, type=Replied)
            self.replied.add(told.message)
            self.queries.pop(told.query, None)
        elif int(mark) == self.attempts and not self.is_over:
            self._hear(message)

    def _hear(self, message: StoredMessage) -> None:
        """Takes in what the agent itself has sent."""
        is_first, self.has_spoken = not self.has_spoken, True
        headers = {
            name: value
            for name, value in (message.headers or {}).items()
            if name.lower() not in _OF_THE_STREAM
        }
        if ERROR_CODE in headers:
            self.error, self.is_over = (headers[ERROR_CODE], headers.get(_ERROR, "")), True
            self.is_untaken = is_first and headers[ERROR_CODE] in BUSY
        elif not message.data and not headers:
            self.is_over = True
        else:
            try:
                chunk = decode_chunk(message.data)
            except (ProtocolError, ValueError) as error:
                self.error, self.is_over = ("", f"what it sends is not of the protocol: {error}"), True
                return
            match chunk:
                case ResponseChunk():
                    self._texts.append((message.seq, chunk.text))
                    self._attachments += chunk.attachments or []
                case StatusChunk(status=status) if status not in ("ack", "done"):
                    self._statuses.append((message.seq, status))
                case QueryChunk():
                    self.queries[chunk.id] = chunk
                case _:
                    pass

    def end(self) -> dict[str, Any]:
        """Fields of the `RemoteTask` once it is over."""
        if self.error is None:
            return {"state": "completed", "answer": self._answer()}
        code, said = self.error
        return {
            "state": "rejected" if code in _REFUSED else "failed",
            "said": f"{said} ({code})" if code else said,
        }

    def activity(self, after: int) -> list[dict[str, Any]]:
        """What was told behind a sequence: texts in a row as one message."""
        found: list[dict[str, Any]] = []
        told = [(seq, "message", text) for seq, text in self._texts if seq > after]
        told += [(seq, "thought", text) for seq, text in self._statuses if seq > after]
        for _, kind, text in sorted(told):
            if kind == "message" and found and found[-1]["type"] == kind:
                found[-1]["text"] += text
            elif text:
                found.append({"type": kind, "text": text})
        return [{**one, "text": _cut(one["text"])} for one in found[-_MOST_AT_ONCE:]]

    def _answer(self) -> Any:
        text = "".join(text for _, text in self._texts)
        said: Any = text
        if len(text.encode()) > _MOST_INLINE_BYTES:
            said = File(text.encode(), name="answer.txt", media_type="text/plain")
        files = [_file_of(one) for one in self._attachments]
        return [*([said] if text else []), *files] if files else said


def _file_of(attachment: Attachment) -> Any:
    try:
        return File(base64.b64decode(attachment.content, validate=True), name=attachment.filename)
    except binascii.Error:
        return f"{attachment.filename}: its content is not Base64"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT_CHARS else f"{text[:_MOST_TEXT_CHARS]}…"
