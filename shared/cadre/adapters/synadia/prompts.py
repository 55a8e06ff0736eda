"""The prompts of one agent as tasks: begun, looked after, answered, given up. Their answers outlive the process that
gave them: an agent answers to a subject that a stream of JetStream holds."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from synadia_ai.agents import Attachment, Envelope, ProtocolError, ResponseChunk, StatusChunk, encode
from synadia_ai.agents.messages import QueryChunk, decode_chunk

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.remote_agent_tools import RemoteMessage, name_of
from cadre.adapters.synadia.link import AgentAbsent, AgentRefused, Link
from cadre.errors import BusUnavailable, Fenced, NotPermitted, RetryableError, SetupError, TooLarge
from cadre.protocol.topology import exchange_stream, exchange_subject
from cadre.recent import Recent
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.spec.yaml_file import read_yaml
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted
from cadre.tools.files import File

KEPT_SECONDS = 7 * 86_400
"""The retention time of prompts and answers in the stream."""

_FIRST_ANSWER_SECONDS = 5.0
_MOST_KNOWN = 1_000
_BATCH = 256
_TOKEN = re.compile(r"[^\s.*>]+")


class Exchanges:
    """The prompts that one agent was given, and what it has answered. Every method raises AgentAbsent, AgentRefused."""

    def __init__(self, name: str, prefix: str, link: Link, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._prefix = prefix
        self._stream = exchange_stream(prefix)
        self._link = link
        self._clock = clock
        self._known: Recent[str, tuple[PromptTranscript, float]] = Recent(_MOST_KNOWN)
        """The transcript of each, as read so far, and the time since when nothing was new."""
        self._unpublished: Recent[str, None] = Recent(_MOST_KNOWN)
        """Attempts that this process has marked, or may have, and not made."""
        self._has_stream = False

    async def read(self, task: str) -> PromptTranscript:
        """Return what the stream holds of the task."""
        nc = await self._ready()
        known, since = self._known.get(task) or (PromptTranscript(), self._clock())
        before = known.seq
        try:
            while True:
                query = {
                    "seq": known.seq + 1,
                    "next_by_subj": f"{self._subject(task)}.>",
                    "batch": _BATCH,
                }
                found = await jetstream.batch(nc, self._stream, query)
                for message in found:
                    known.take(message)
                if len(found) < _BATCH:
                    break
        except RetryableError as error:
            raise AgentAbsent(str(error)) from error
        self._known[task] = known, since if known.seq == before else self._clock()
        return known

    def quiet(self, task: str) -> float:
        """For how many seconds nothing new was read of the task."""
        found = self._known.get(task)
        return self._clock() - found[1] if found is not None else 0.0

    async def prompt(self, task: str, payload: bytes, traceparent: str, *, has_files: bool) -> None:
        """Prompt the agent unless an attempt was already marked; one that this process marked but did not make is made
        now."""
        known = await self.read(task)
        place = self._attempt(task, known.attempts)
        is_ours = known.is_begun and place in self._unpublished and not known.has_spoken
        if known.is_begun and not is_ours:
            return
        await self.attempt(task, known, payload, traceparent, has_files=has_files, is_marked=is_ours)

    async def attempt(
        self,
        task: str,
        known: PromptTranscript,
        payload: bytes,
        traceparent: str,
        *,
        has_files: bool,
        is_marked: bool = False,
    ) -> None:
        """Make the next attempt at the task, or the one that was marked and not made."""
        info = await self._link.find()
        await self._link.check_size(info, payload, has_files=has_files)
        headers = await self._link.signed(info, payload)
        place = self._attempt(task, known.attempts + (0 if is_marked else 1))
        if not is_marked and not await self._mark(f"{place}.{PROMPT}", payload):
            return
        self._unpublished.pop(place, None)
        headers |= {"traceparent": traceparent} if traceparent else {}
        if not await self._is_taken(place, info.prompt_endpoint.subject, payload, headers):
            self._unpublished[place] = None  # should the mark not be stored
            await self._append(f"{place}.{UNTAKEN}", b"")
            self._unpublished.pop(place)
            raise AgentAbsent(f"{self._name} has not taken the task: it is busy, or has just left")

    async def reply(self, task: str, known: PromptTranscript, message: str, text: str) -> None:
        """Pass a person's word on to the first question that is open. Said again, it does no harm: the agent hears
        one answer."""
        if message in known.replied or not known.queries:
            return
        nc = await self._ready()
        query = next(iter(known.queries.values()))
        await nc.publish(query.reply_subject, text.encode())
        told = msgspec.json.encode(Replied(query=query.id, message=message))
        await self._append(f"{self._attempt(task, known.attempts)}.{REPLIED}", told)

    async def _is_taken(self, place: str, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        """Publish the prompt; return False when the first answer says that no agent has taken it."""
        nc = await self._ready()
        listening = await nc.subscribe(place)
        try:
            await nc.publish(subject, payload, reply=place, headers=headers or None)
            first = await listening.next_msg(timeout=_FIRST_ANSWER_SECONDS)
        except nats.errors.TimeoutError:
            return True  # for all that is known
        except nats.errors.Error as error:
            raise AgentAbsent(f"{self._name}: {error}") from error
        finally:
            if not nc.is_closed:
                await listening.unsubscribe()
        about = first.headers or {}
        return about.get("Status") != "503" and about.get(ERROR_CODE) not in BUSY

    async def _mark(self, subject: str, data: bytes) -> bool:
        """Mark an attempt; return False when another process was first. Raises AgentAbsent when it is unknown whether
        it is marked: this process then knows that it has not made it."""
        place = subject.rpartition(".")[0]
        self._unpublished[place] = None
        try:
            await self._append(subject, data, expect=0)
        except Fenced:
            self._unpublished.pop(place)
            return False
        return True

    async def _append(self, subject: str, data: bytes, expect: int | None = None) -> None:
        nc = await self._ready()
        try:
            await jetstream.append(nc, subject, data, expect=expect)
        except (NotPermitted, TooLarge) as error:
            raise AgentRefused(f"{self._name}: {error}") from error
        except RetryableError as error:
            raise AgentAbsent(str(error)) from error

    async def _ready(self) -> Client:
        """Return the connection, with the stream behind it."""
        nc = await self._link.connection()
        if not self._has_stream:
            config: dict[str, Any] = {
                "name": self._stream,
                "subjects": [f"{self._prefix}.remote.>"],
                "retention": "limits",
                "storage": "file",
                "discard": "new",
                "max_age": KEPT_SECONDS * 1_000_000_000,
                "allow_direct": True,
            }
            try:
                if await jetstream.stream_info(nc, self._stream) is None:
                    doing = f"making the stream {self._stream}"
                    await jetstream.ask(nc, doing, f"STREAM.CREATE.{self._stream}", config)
            except NotPermitted as error:
                raise AgentRefused(
                    f"{self._name}: {error}. Where its agent is, the user of `nats.credentials` needs the rights that"
                    " docs/members.md lists"
                ) from error
            except BusUnavailable as error:
                raise AgentAbsent(str(error)) from error
            self._has_stream = True
        return nc

    def _subject(self, task: str) -> str:
        if not _TOKEN.fullmatch(task):
            raise AgentRefused(f"{self._name}: {task!r} names no task")
        return exchange_subject(self._prefix, self._name, task)

    def _attempt(self, task: str, number: int) -> str:
        return f"{self._subject(task)}.{number}"


_WORDS: dict[str, str] = read_yaml(files("cadre") / "prompts" / "members" / "acp.yaml", SetupError)
_ACK_SECONDS = 30.0
"""An agent says at once that it has a prompt; one that was silent for so long may never have got it."""
_MOST_ATTEMPTS = 3
_NO = "reject"


class PromptedTasks:
    """The tasks of one agent (`RemoteTasks`). Methods raise AgentRefused too; nothing that they need is in this process
    alone."""

    def __init__(self, spec: AgentSpec, section: RemoteSpec, link: Link, prefix: str) -> None:
        self._name = spec.name
        self._schema = spec.output_schema
        self._section = section
        self._exchanges = Exchanges(spec.name, prefix, link)

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Prompt the agent, or answer what it has asked. Raises CallInterrupted."""
        if message.task_id:
            return await self._answer(message)
        return await self._begin(ctx, message)

    async def _begin(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        task, envelope = message.id, await self._envelope(ctx, message)
        has_files = bool(envelope.attachments)
        try:
            await self._exchanges.prompt(task, encode(envelope), ctx.traceparent, has_files=has_files)
            return self._with_activity(task, await self._exchanges.read(task), 0)
        except AgentAbsent as error:
            return {"lost": str(error)}

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Read what the agent has said behind the cursor. Raises CallInterrupted when no more can be known."""
        try:
            known = await self._exchanges.read(task)
            if known.is_begun and not known.is_over and not known.queries:
                await self._bear_silence(task, known, ctx.traceparent)
                known = await self._exchanges.read(task)
        except AgentAbsent as error:
            return {"lost": str(error)}
        return self._with_activity(task, known, int(after) if after.isdecimal() else 0)

    async def _answer(self, message: RemoteMessage) -> dict[str, Any]:
        task = message.task_id
        words = message.text or "\n".join(msgspec.json.encode(value).decode() for value in message.data)
        try:
            await self._exchanges.reply(task, await self._exchanges.read(task), message.id, words)
            return self._told(task, await self._exchanges.read(task))
        except AgentAbsent as error:
            return {"lost": str(error)}

    async def cancel(self, _: ToolContext, task: str) -> dict[str, Any]:
        """Turn down what the agent asks. It hears of no end: the protocol has no word for one."""
        try:
            known = await self._exchanges.read(task)
            for query in [*known.queries]:
                await self._exchanges.reply(task, known, f"cancel-{query}", _NO)
                known.queries.pop(query, None)
        except AgentAbsent as error:
            return {"lost": str(error)}
        return {"task": task, "state": "canceled"}

    def _with_activity(self, task: str, known: PromptTranscript, after: int) -> dict[str, Any]:
        """Also of a task that was over when it was first looked at: an agent may be quicker than who asks it."""
        return {**self._told(task, known), "activity": known.activity(after), "cursor": str(known.seq)}

    def _told(self, task: str, known: PromptTranscript) -> dict[str, Any]:
        if not known.is_begun:
            return {"lost": f"{self._name} was not prompted yet"}
        if known.is_over:
            end = known.end()
            if self._schema is not None and isinstance(end.get("answer"), str):
                end["answer"] = _as_json(end["answer"])
            return {"task": task, **end}
        if known.queries:
            asked = next(iter(known.queries.values()))
            return {"task": task, "state": "input_required", "said": asked.prompt}
        return {"task": task, "state": "working" if known.has_spoken else "submitted"}

    async def _bear_silence(self, task: str, known: PromptTranscript, traceparent: str) -> None:
        """Wait on, or prompts an agent again that may be. Raises CallInterrupted, AgentAbsent."""
        most, quiet = self._section.absence if known.has_spoken else _ACK_SECONDS, self._exchanges.quiet(task)
        if quiet < min(most, self._section.absence):
            return
        if not self._section.idempotent:
            raise CallInterrupted(
                f"outcome unknown: {self._name} has said nothing for {quiet:.0f} s; it may or may not have done its"
                " work, and was not asked again"
            )
        if known.attempts >= _MOST_ATTEMPTS:
            raise AgentRefused(f"{self._name} was prompted {known.attempts} times and fell silent each time")
        envelope = msgspec.json.decode(known.envelope)
        await self._exchanges.attempt(task, known, known.envelope, traceparent, has_files="attachments" in envelope)

    async def _envelope(self, ctx: ToolContext, message: RemoteMessage) -> Envelope:
        texts, found = message.in_words()
        if self._schema is not None:
            texts.append(_WORDS["schema"].format(schema=msgspec.json.encode(self._schema).decode()))
        attached = []
        for number, file in enumerate(found, 1):
            await ctx.fetch(file)
            content = base64.b64encode(file.data).decode()
            attached.append(Attachment(filename=name_of(file, number), content=content))
        return Envelope(prompt="\n\n".join(texts) or " ", attachments=attached or None)


def _as_json(text: str) -> Any:
    inner = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        return msgspec.json.decode(inner)
    except msgspec.DecodeError:
        return text  # which the check of the answer refuses


PROMPT, UNTAKEN, REPLIED = "prompt", "untaken", "replied"
"""The marks that executors leave next to the agent's own messages: last tokens of subjects."""

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
        """The content of the prompt."""
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
        """The agent's unanswered questions, by id."""
        self._texts: list[tuple[int, str]] = []
        self._statuses: list[tuple[int, str]] = []
        self._attachments: list[Attachment] = []

    @property
    def is_begun(self) -> bool:
        """Return whether the agent was prompted, or may have been."""
        return self.attempts > 0 and not self.is_untaken

    def take(self, message: StoredMessage) -> None:
        """Take the next message in."""
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
        """Take in what the agent itself has sent."""
        is_first, self.has_spoken = not self.has_spoken, True
        headers = {name: value for name, value in (message.headers or {}).items() if name.lower() not in _OF_THE_STREAM}
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
        """Return the fields of the `RemoteTask` once it is over."""
        if self.error is None:
            return {"state": "completed", "answer": self._answer()}
        code, said = self.error
        return {
            "state": "rejected" if code in _REFUSED else "failed",
            "said": f"{said} ({code})" if code else said,
        }

    def activity(self, after: int) -> list[dict[str, Any]]:
        """Return the activity after a sequence: consecutive texts as one message."""
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
