"""Run one task of a program: start its process, begin or reopen its session, ask people for its permissions, collect
what it reports of its work."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from cadre.adapters.acp.program import (
    Program,
    ProgramDied,
    ProgramListener,
    ProgramRefused,
    ProgramTurn,
    open_program,
)
from cadre.adapters.acp.task_store import Asked, PermissionRuling, TaskRecord
from cadre.adapters.mcp.server_file import Endpoint
from cadre.errors import SetupError
from cadre.protocol.usage import Usage
from cadre.spec.remote_agent import Permissions
from cadre.spec.yaml_file import read_yaml

log = logging.getLogger("cadre.acp")


PROMPTS: dict[str, str] = read_yaml(files("cadre") / "prompts" / "members" / "acp.yaml", SetupError)

_MOST_DEATHS = 3
_CANCEL_SECONDS = 10.0
_STOPS = {
    "max_tokens": {
        "state": "failed",
        "error": "cut-off",
        "said": "its model's answer was cut off",
    },
    "max_turn_requests": {
        "state": "failed",
        "error": "max-steps",
        "said": "it may ask its model no more",
    },
    "refusal": {"state": "rejected"},
    "cancelled": {"state": "canceled"},
}
"""Fields of a `RemoteTask`, by the reason why a program stops without an answer."""


class Launch(NamedTuple):
    """The command that starts the program, with all references resolved: it must not be shown or stored."""

    command: list[str]
    environment: dict[str, str]
    servers: list[tuple[str, Endpoint]]
    hide: Callable[[str], str]


class Terms(NamedTuple):
    """The terms of all tasks of a program."""

    name: str
    permissions: Permissions
    seconds: float | None
    """The longest lifetime of a process."""
    launch: Callable[[], Launch]
    """Raises SetupError."""
    save: Callable[[TaskRecord], None]
    places: asyncio.Semaphore


class ProgramTask:
    """A task in the hands of this process."""

    def __init__(self, record: TaskRecord, terms: Terms) -> None:
        self.record = record
        self.activity = Activity()
        self._terms = terms
        self._driving: asyncio.Task[None] | None = None
        self._program: Program | None = None
        self._waiting: dict[str, tuple[asyncio.Future[str | None], list[Json]]] = {}
        self._is_cancelled = False

    def go_on(self) -> None:
        """Have the program work on the task, as far as that is possible and allowed."""
        record = self.record
        if self._driving is not None or record.phase in ("over", "unknown"):
            return
        if record.phase != "queued" and not record.reopens:
            self._end({"said": "the process that had started it has ended"}, "unknown")
        elif record.phase != "asking":  # then a person's word begins it
            self._driving = asyncio.create_task(self._drive(), name=f"{self._terms.name} {record.task}")

    async def cancel(self) -> None:
        """End the task: ask the program to cancel it, and kill the program when it does not."""
        self._is_cancelled = True
        for waiting, _ in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
        if (driving := self._driving) is not None and not driving.done():
            if self._program is not None and self.record.session:
                try:
                    await self._program.cancel(self.record.session)
                except ProgramDied as error:
                    log.info("%s: %s", self._terms.name, error)
                await asyncio.wait({driving}, timeout=_CANCEL_SECONDS)
            driving.cancel()
            await asyncio.wait({driving})
        if self.record.phase != "over":
            self._end({"state": "canceled"})

    def rule(self, call: str, *, is_yes: bool, feedback: str) -> None:
        """A person has decided on a permission."""
        asked = next((one for one in self.record.asked if one.call == call), None)
        if asked is None:
            return
        self.record.asked.remove(asked)
        ruling = PermissionRuling(asked=asked, is_yes=is_yes, feedback=feedback)
        waiting = self._waiting.get(call)
        if waiting is None:
            self.record.rulings.append(ruling)
        elif not waiting[0].done():
            waiting[0].set_result(self._choice(ruling, waiting[1]))
        self._save("asking" if self.record.asked else "prompted")

    # --- the program

    async def _drive(self) -> None:
        terms, record = self._terms, self.record
        try:
            async with terms.places:
                while record.phase in ("queued", "prompted"):
                    await self._try(terms.seconds)
        finally:
            self._driving = None

    async def _try(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._once()
        except ProgramDied as error:
            self._died(str(error))
        except (ProgramRefused, SetupError, OSError) as error:
            self._end({"state": "failed", "said": str(error)})
        except TimeoutError:
            self._end({"state": "failed", "said": f"it has not ended within {seconds:g} s"})
        finally:
            self._program = None

    async def _once(self) -> None:
        """Start the program and has it work until it stops."""
        record, launch = self.record, self._terms.launch()
        client = ProgramListener(self.activity.take, self._permit)
        try:
            async with open_program(launch.command, launch.environment, Path(record.folder), client) as program:
                self._program = program
                if record.session:
                    await program.reopen(record.reopens, record.session, record.folder, launch.servers)
                    blocks = [{"type": "text", "text": PROMPTS["go_on"]}]
                else:
                    session = await program.begin(record.folder, launch.servers)
                    record.session, record.reopens = session, program.reopens
                    blocks = record.blocks if program.sees_images else _with_unseen(record.blocks)
                self._save("prompted")
                turn = await self._prompt(program, blocks)
                while turn.stop == "end_turn" and record.words:
                    text, record.words = "\n".join(record.words), []
                    turn = await self._prompt(program, [{"type": "text", "text": text}])
        except (ProgramDied, ProgramRefused) as error:
            raise type(error)(launch.hide(str(error))) from error
        if turn.stop == "end_turn":
            record.answer = self.activity.answer
            self._end({"state": "completed"})
        else:
            said = {"said": self.activity.answer[:2_000]} if turn.stop == "refusal" else {}
            self._end({**_STOPS[turn.stop], **said})

    async def _prompt(self, program: Program, blocks: list[Json]) -> ProgramTurn:
        self.activity.begin_turn()
        turn = await program.prompt(self.record.session, blocks)
        if turn.tokens is not None:
            # They are those of the session; some programs give those of the turn.
            before, now = self.record.tokens, turn.tokens
            is_whole = sum(now) >= sum(before)
            self.record.tokens = now if is_whole else (before[0] + now[0], before[1] + now[1])
        return turn

    def usage(self) -> Usage:
        """Return what the task has used, as far as the program reports it: its context at least, until it counts its
        tokens."""
        (read, written), known = self.record.tokens, self.record.usage
        at_least = max(0, self.activity.context_tokens - written)
        return Usage(
            input_tokens=max(known.input_tokens, read, 0 if read else at_least),
            output_tokens=max(known.output_tokens, written),
            cost=max(known.cost, self.activity.cost),
        )

    def _died(self, why: str) -> None:
        record = self.record
        record.deaths += 1
        log.warning("%s: task %s: %s", self._terms.name, record.task, why)
        self._waiting.clear()
        if record.phase != "queued" and not record.reopens:
            self._end({"said": why}, "unknown")
        elif record.deaths >= _MOST_DEATHS:
            self._end({"state": "failed", "said": f"it has died {record.deaths} times over it: {why}"})
        else:
            self._save(record.phase)  # a person's word is waited for also without a process

    def _end(self, fields: Json, phase: Any = "over") -> None:
        self.record.end = fields
        self.record.asked = []
        self._save(phase)

    def _save(self, phase: Any) -> None:
        self.record.phase, self.record.usage = phase, self.usage()
        self._terms.save(self.record)

    # --- permissions

    async def _permit(self, call: Json, options: list[Json]) -> str | None:
        """Return the id of the option that is chosen; None: the task is cancelled."""
        if self._is_cancelled:
            return None
        asked = self._asked(call)
        if self._terms.permissions != "ask":
            return self._choice(PermissionRuling(asked=asked, is_yes=self._terms.permissions == "allow"), options)
        given = next((one for one in self.record.rulings if one.asked.is_like(asked)), None)
        if given is not None:
            self.record.rulings.remove(given)
            return self._choice(given, options)
        decided: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[asked.call] = decided, options
        self.record.asked.append(asked)
        self._save("asking")
        try:
            return await decided
        finally:
            self._waiting.pop(asked.call, None)

    def _asked(self, call: Json) -> Asked:
        self.activity.take({**call, "sessionUpdate": "tool_call_update"})
        number = str(call.get("toolCallId"))
        known = self.activity.about(number)
        about = known.get("input")
        arguments = about if isinstance(about, dict) else {} if about is None else {"input": about}
        if not arguments and known.get("text"):
            arguments = {"content": known["text"]}
        taken = {one.call for one in self.record.asked}
        unique = number if number not in taken else f"{number}-{len(taken) + 1}"
        return Asked(call=unique, tool=str(known.get("title") or known.get("sort") or number), arguments=arguments)

    def _choice(self, ruling: PermissionRuling, options: list[Json]) -> str | None:
        """Return the option that matches the ruling; words that no option expresses are sent in a separate prompt."""
        word = ruling.feedback.strip()
        for option in options:
            if word and word.lower() in (str(option["optionId"]).lower(), str(option["name"]).lower()):
                return str(option["optionId"])
        if word:
            verdict = "approved" if ruling.is_yes else "refused"
            text = PROMPTS["word"].format(title=ruling.asked.tool, verdict=verdict, feedback=word)
            self.record.words.append(text)
        kinds = ("allow_once", "allow_always") if ruling.is_yes else ("reject_once", "reject_always")
        by_kind = {str(option["kind"]): str(option["optionId"]) for option in reversed(options)}
        return next((by_kind[kind] for kind in kinds if kind in by_kind), None)


def _with_unseen(blocks: list[Json]) -> list[Json]:
    """Return the blocks, with words on the images among them."""
    names = [one["name"] for one in blocks if one["type"] == "file" and one["media_type"].startswith("image/")]
    said = [{"type": "text", "text": PROMPTS["unseen"].format(names=", ".join(names))}] if names else []
    return [*blocks, *said]


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
        """A name that distinguishes its cursors from those of an earlier process."""
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
        """Return its last message."""
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
        """Take one `session/update`."""
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
