"""Collect what a program reports of its work: messages, thoughts, calls of its tools, plans."""

from __future__ import annotations

import secrets
import time
from typing import Any

Json = dict[str, Any]

_MOST_TEXT_CHARS = 2_000
_MOST_AT_ONCE = 40
_MOST_KEPT = 2_000
_ENDED = ("completed", "failed")
_CHUNKS = {"agent_message_chunk": "message", "agent_thought_chunk": "thought"}


class Activity:
    """The work of one task, as far as this process has heard of it."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)
        """Tells its cursors from those of an earlier process."""
        self._items: list[Json] = []
        self._dropped = 0
        self._open: Json | None = None
        """The message or thought that chunks are added to."""
        self._message = ""
        self._words: list[str] = []
        """The chunks of the message that may be the answer."""
        self._has_acted = False
        self._tools: dict[str, Json] = {}
        self.context_tokens = 0
        self.cost = 0.0

    @property
    def answer(self) -> str:
        """Its last message."""
        return "".join(self._words).strip()

    def about(self, call: str) -> Json:
        """Return what the program reported of a call of its tools."""
        return self._tools.get(call, {})

    def since(self, cursor: str, most: int = _MOST_AT_ONCE) -> tuple[list[Json], str]:
        """Return what was reported after the cursor, and the next cursor."""
        self._close()
        name, _, number = cursor.partition(":")
        begin = max(int(number) - self._dropped, 0) if name == self._name and number.isdecimal() else 0
        found = self._items[begin : begin + most]
        return found, f"{self._name}:{self._dropped + begin + len(found)}"

    def begin_turn(self) -> None:
        """Forget what it has said so far: the next text begins an answer."""
        self._close()
        self._has_acted = True

    def take(self, update: Json) -> None:
        """Takes one `session/update`."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk" as kind:
                self._chunk(_CHUNKS[kind], update)
            case "tool_call" | "tool_call_update":
                self._tool(update)
            case "plan":
                entries = [
                    {"content": _cut(str(one.get("content"))), "status": one.get("status")}
                    for one in update.get("entries") or []
                ]
                self._add({"type": "plan", "entries": entries})
            case "usage_update":
                self.context_tokens = max(self.context_tokens, int(update.get("used") or 0))
                self.cost = max(self.cost, float((update.get("cost") or {}).get("amount") or 0.0))
            case _:
                pass

    def _chunk(self, kind: str, update: Json) -> None:
        text = str((update.get("content") or {}).get("text") or "")
        if kind == "message":
            message = str(update.get("messageId") or "")
            if self._has_acted or (message and self._message and message != self._message):
                self._words, self._has_acted = [], False
            self._message = message
            self._words.append(text)
        if self._open is None or self._open["type"] != kind:
            self._close()
            self._open = {"type": kind, "text": ""}
        self._open["text"] += text

    def _tool(self, update: Json) -> None:
        self._has_acted = True
        call = str(update.get("toolCallId"))
        known = self._tools.setdefault(call, {"id": call, "began": time.time()})
        was = known.get("status")
        for key, name in (("title", "title"), ("kind", "sort"), ("status", "status"), ("rawInput", "input")):
            if update.get(key) is not None:
                known[name] = update[key]
        if update.get("content"):
            known["text"] = _cut(_text_of(update["content"]))
        status = known.setdefault("status", "pending")
        if status == was or (status == "pending" and was is not None):
            return
        if status in _ENDED:
            known["ended"] = time.time()
        shown = {key: value for key, value in known.items() if key != "input"}
        self._add({"type": "tool", **shown, "title": _cut(str(known.get("title") or call))})

    def _close(self) -> None:
        if self._open is not None and self._open["text"].strip():
            self._items.append({**self._open, "text": _cut(self._open["text"].strip())})
        self._open = None

    def _add(self, item: Json) -> None:
        self._close()
        self._items.append(item)
        if (beyond := len(self._items) - _MOST_KEPT) > 0:
            del self._items[:beyond]
            self._dropped += beyond


def _text_of(content: list[Json]) -> str:
    """Return what a call of its tools gave, or is to change, as text."""
    texts = []
    for one in content:
        match one.get("type"):
            case "content":
                texts.append(str((one.get("content") or {}).get("text") or ""))
            case "diff":
                texts.append(f"{one.get('path')}:\n{one.get('newText')}")
    return "\n".join(text for text in texts if text)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT_CHARS else f"{text[:_MOST_TEXT_CHARS]}…"
