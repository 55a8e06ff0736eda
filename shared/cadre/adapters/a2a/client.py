"""A client of A2A: calls of one remote agent by the interface that its card offers, and its tasks, begun and continued
by messages."""

import base64
import binascii
import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec

from cadre.adapters.a2a.bindings import (
    HttpCall,
    Interface,
    RemoteAgentUnreachable,
    RemoteRefused,
    choose,
    is_temporary,
    read_card,
    request_of,
    result_of,
    why_refused,
)
from cadre.adapters.http_options import http_options
from cadre.adapters.remote_agent_tools import RemoteMessage, without_files
from cadre.adapters.secret_references import References
from cadre.errors import SettingError, SetupError
from cadre.protocol.tagged import for_people
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted
from cadre.tools.files import File

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest answer that is read."""

_REQUEST_SECONDS = 120.0
"""The timeout of a request: an agent that does not answer at once does all its work within it."""
_CONNECT_SECONDS = 10.0
_CARD_SECONDS = 300.0
"""The time for which a card is valid."""


class _KnownInterface(NamedTuple):
    interface: Interface
    knows_messages: bool
    until: float


class RemoteClient:
    """One remote agent, asked over connections that are opened when they are needed."""

    def __init__(self, name: str, spec: RemoteSpec, folder: Path) -> None:
        self._name = name
        self._spec = spec
        self._folder = folder
        self._place: _KnownInterface | None = None

    def check(self) -> None:
        """Raise SetupError for a secret that is not there."""
        self._headers(References(self._folder, self._name))

    async def knows_messages(self) -> bool:
        """Return whether a message that is sent again finds its task. Raises RemoteRefused, RemoteAgentUnreachable."""
        if self._spec.idempotent is not None:
            return self._spec.idempotent
        return (await self._find()).knows_messages

    async def lists_tasks(self) -> bool:
        """Return whether the agent can be asked for all of its tasks. Raises RemoteRefused, RemoteAgentUnreachable."""
        return (await self._find()).interface.lists_tasks

    async def call(self, method: str, params: dict[str, Any], traceparent: str) -> Any:
        """Return the result of the method; both are those of version 1.0. Raises RemoteRefused,
        RemoteAgentUnreachable."""
        place = (await self._find()).interface
        sent = request_of(place, method, params)
        if traceparent:
            sent.headers["traceparent"] = traceparent
        status, data = await self._request(sent)
        return result_of(place, method, self._name, status, data)

    async def _find(self) -> _KnownInterface:
        """Return the address, by its card where the file names that."""
        now = time.monotonic()
        if self._place is None or self._place.until < now:
            if self._spec.url:
                here = Interface(self._spec.url, self._spec.transport or "JSONRPC 1.0")
                self._place = _KnownInterface(here, False, float("inf"))
            else:
                self._place = await self._by_card(now + _CARD_SECONDS)
        return self._place

    async def _by_card(self, until: float) -> _KnownInterface:
        url = self._spec.card
        try:
            status, data = await self._request(HttpCall("GET", url, {}, b""))
        except RemoteAgentUnreachable as error:
            raise RemoteAgentUnreachable(str(error), may_have_arrived=False) from error
        if is_temporary(status):
            raise RemoteAgentUnreachable(f"{self._name}: its card answers {status}", may_have_arrived=False)
        if status != httpx2.codes.OK:
            raise RemoteRefused(f"{self._name}: {why_refused(status, url, 'card')}")
        try:
            card = read_card(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteRefused(f"{self._name}: {url} is no card of A2A: {error}") from error
        # Headers hold secrets: they go to the host that the file names, and no other.
        origin = url if self._spec.headers else ""
        found = choose(card, self._name, transport=self._spec.transport, origin=origin)
        return _KnownInterface(found, card.knows_messages, until)

    async def _request(self, sent: HttpCall) -> tuple[int, bytes]:
        references, url = References(self._folder, self._name), sent.url
        try:
            headers = self._headers(references) | sent.headers
        except SetupError as error:
            raise RemoteRefused(str(error)) from error
        timeout = httpx2.Timeout(_REQUEST_SECONDS, connect=_CONNECT_SECONDS)
        try:
            async with (
                httpx2.AsyncClient(timeout=timeout, **http_options(url)) as client,
                client.stream(sent.verb, url, headers=headers, content=sent.body) as answer,
            ):
                return answer.status_code, await self._read(answer)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, SettingError) as error:
            raise RemoteRefused(f"{self._name}: {url}: {error}") from error
        except httpx2.HTTPError as error:
            text = references.hide(f"{self._name}: {url}: {str(error) or type(error).__name__}")
            not_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            raise RemoteAgentUnreachable(text, may_have_arrived=not not_sent) from error

    async def _read(self, answer: httpx2.Response) -> bytes:
        data = bytearray()
        async for piece in answer.aiter_bytes():
            data += piece
            if len(data) > MOST_ANSWER_BYTES:
                raise RemoteRefused(f"{self._name} answers with more than {MOST_ANSWER_BYTES} bytes")
        return bytes(data)

    def _headers(self, references: References) -> dict[str, str]:
        return {name: references.resolve(f"headers.{name}", text) for name, text in self._spec.headers.items()}


_HISTORY = 20
_PAGE = 50
_MOST_PAGES = 10
"""Bounds of the search for the task of a message: it is among the newest."""


class A2ATasks:
    """The tasks of the agent behind a client (`RemoteTasks`). Methods raise RemoteRefused too."""

    def __init__(self, agent: str, client: RemoteClient) -> None:
        self._agent = agent
        self._client = client

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Send a message. Raises CallInterrupted when it is unknown whether it has arrived."""
        parts = await message_of(ctx, message.text, message.data, message.images)
        said = {"messageId": message.id, **message.task, **parts}
        if ctx.deliveries > 1 and not await self._knows_messages():
            return await self._sent_before(
                ctx, message, f"the sender of a message to {self._agent} has died of it or been stopped"
            )
        params = {"message": said, "configuration": {"returnImmediately": True, "historyLength": 0}}
        try:
            return task_of(await self._client.call("SendMessage", params, ctx.traceparent))
        except RemoteAgentUnreachable as error:
            if error.may_have_arrived and not await self._knows_messages():
                return await self._sent_before(ctx, message, str(error))
            return {"lost": str(error)}

    async def _sent_before(self, ctx: ToolContext, message: RemoteMessage, reason: str) -> dict[str, Any]:
        """Return the task whose history has the message, which may have arrived. Raises CallInterrupted if none has."""
        found = None
        with contextlib.suppress(RemoteAgentUnreachable, RemoteRefused):  # then it stays unknown
            if message.task_id:
                params = {"id": message.task_id, "historyLength": _HISTORY}
                task = await self._client.call("GetTask", params, ctx.traceparent)
                found = task if has_message(task, message.id) else None
            elif await self._client.lists_tasks():
                found = await self._listed(ctx, message.id)
            if found is not None:
                return await self.look(ctx, found["id"], "")
        raise CallInterrupted(
            f"{reason}; its card does not say that a message can be sent again, and it shows no task of this one"
        )

    async def _listed(self, ctx: ToolContext, message: str) -> dict[str, Any] | None:
        """Return the task that the message began, among those that changed last."""
        params: dict[str, Any] = {"pageSize": _PAGE, "historyLength": _HISTORY}
        for _ in range(_MOST_PAGES):
            page = await self._client.call("ListTasks", params, ctx.traceparent)
            tasks = page.get("tasks")
            for task in tasks if isinstance(tasks, list) else []:
                if has_message(task, message):
                    return dict(task)
            if not isinstance(token := page.get("nextPageToken"), str) or not token:
                break
            params = {**params, "pageToken": token}
        return None

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Ask for a task; the protocol has no cursor."""
        return await self._asked("GetTask", {"id": task, "historyLength": 0}, ctx)

    async def cancel(self, ctx: ToolContext, task: str) -> dict[str, Any]:
        """End a task."""
        return await self._asked("CancelTask", {"id": task}, ctx)

    async def _asked(self, method: str, params: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Return the task that the method answers with, or why the agent cannot be reached."""
        try:
            return task_of(await self._client.call(method, params, ctx.traceparent))
        except RemoteAgentUnreachable as error:
            return {"lost": str(error)}

    async def _knows_messages(self) -> bool:
        try:
            return await self._client.knows_messages()
        except (RemoteAgentUnreachable, RemoteRefused):
            return False  # unknown


def has_message(task: Any, message: str) -> bool:
    """Return whether the task's history has the message."""
    try:
        history = msgspec.convert(task, _Told).history
    except msgspec.ValidationError:
        return False
    return any(said.message_id == message for said in history)


class _Said(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str = ""


class _Told(msgspec.Struct, frozen=True):
    id: str
    history: list[_Said] = []


MOST_INLINE_BYTES = 32 * 1024
"""A larger answer is a file: a run decides by what its journal holds whole."""
_MOST_SAID_CHARS = 2_000


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = msgspec.UNSET
    filename: str | None = None
    media_type: str | None = None


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    parts: list[_Part] = []
    message_id: str | None = None


class _Status(msgspec.Struct, frozen=True):
    state: str
    message: _Message | None = None
    timestamp: str | None = None


class _Artifact(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    status: _Status
    context_id: str | None = None
    artifacts: list[_Artifact] | None = None


class _Sent(msgspec.Struct, frozen=True):
    task: _Task | None = None
    message: _Message | None = None


def task_of(result: Any) -> dict[str, Any]:
    """Return the fields of a `RemoteTask`, from what a method has answered; a message in place of a task is the whole
    answer.

    Raises RemoteRefused for what is neither.
    """
    try:
        sent = msgspec.convert(result, _Sent)
        if sent.message is not None:
            return _found("completed", answer=_answer(sent.message.parts))
        task = sent.task or msgspec.convert(result, _Task)
    except msgspec.ValidationError as error:
        raise RemoteRefused(f"what the remote agent answers is no task of A2A: {error}") from error
    status = task.status
    state = status.state.removeprefix("TASK_STATE_").lower()
    words = status.message.parts if status.message is not None else []
    said = "\n".join(part.text for part in words if part.text is not None)
    found = _found(state, task=task.id, context=task.context_id or "", said=said[:_MOST_SAID_CHARS])
    status_id = status.timestamp or (status.message.message_id if status.message is not None else None)
    found |= {"status_id": status_id} if status_id else {}
    if state == "completed":
        parts = [part for artifact in task.artifacts or [] for part in artifact.parts]
        return found | {"answer": _answer(parts or words)}
    asked = [part.data for part in words if part.data is not msgspec.UNSET]
    if state == "input_required" and asked and len(msgspec.json.encode(asked)) <= MOST_INLINE_BYTES:
        return found | {"asked": asked}
    return found


def _found(state: str, **fields: Any) -> dict[str, Any]:
    return {"state": state, **fields}


def _answer(parts: list[_Part]) -> Any:
    """Return the value of the only part, the text of all, or the list of their values."""
    values = [_value(part) for part in parts]
    if not values:
        return ""
    if all(isinstance(value, str) for value in values):
        values = ["\n".join(values)]
    found = [_inline(value, MOST_INLINE_BYTES // len(values)) for value in values]
    return found[0] if len(found) == 1 else found


def _value(part: _Part) -> Any:
    if part.text is not None:
        return part.text
    if part.raw is not None:
        try:
            return File(base64.b64decode(part.raw), name=part.filename or "", media_type=part.media_type or "")
        except binascii.Error as error:
            raise RemoteRefused(f"a file of the remote agent is not Base64: {error}") from error
    if part.url is not None:
        about = {"url": part.url, "name": part.filename, "media_type": part.media_type}
        return {key: value for key, value in about.items() if value}
    return None if part.data is msgspec.UNSET else part.data


def _inline(value: Any, most: int) -> Any:
    """Return the value, or a file of what is longer."""
    if isinstance(value, File):
        return value
    data = msgspec.json.encode(value)
    if len(data) <= most:
        return value
    if isinstance(value, str):
        return File(value.encode(), name="answer.txt", media_type="text/plain")
    return File(data, name="answer.json", media_type="application/json")


async def message_of(ctx: ToolContext, text: str, data: list[Any], images: list[str]) -> dict[str, Any]:
    """Return the message without its ids. Files are sent with their content, in `data` their names stand for them.
    Raises BlobMissing."""
    files: list[File] = []
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for value in data:
        told = for_people(without_files(value, files))
        parts.append({"data": told, "mediaType": "application/json"})
    for image in images:
        if image.startswith("blob:"):
            files.append(File.from_json(image))
        else:
            parts.append(_linked(image))
    for file in files:
        await ctx.fetch(file)
        about = {"mediaType": file.media_type} | ({"filename": file.name} if file.name else {})
        parts.append({"raw": base64.b64encode(file.data).decode(), **about})
    return {"role": "ROLE_USER", "parts": parts or [{"text": " "}]}


def _linked(image: str) -> dict[str, Any]:
    if not image.startswith("data:"):
        return {"url": image, "mediaType": "image/*"}
    kind, _, content = image.removeprefix("data:").partition(";base64,")
    return {"raw": content, "mediaType": kind}
