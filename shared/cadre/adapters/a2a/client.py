"""A client of A2A 1.0: calls of JSON-RPC to one remote agent, and its tasks, begun and continued by messages."""

import base64
import binascii
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.adapters.remote_agent_tools import RemoteMessage, without_files
from cadre.adapters.secret_references import References
from cadre.errors import CadreError, SettingError, SetupError
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.protocol.tagged import for_people
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted
from cadre.tools.files import File
from cadre.versions import same_minor

VERSION = "1.0"
MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest answer that is read."""

_REQUEST_SECONDS = 120.0
"""The timeout of a request: an agent that does not answer at once does all its work within it."""
_CONNECT_SECONDS = 10.0
_CARD_SECONDS = 300.0
"""The time for which a card is valid."""
_INTERNAL_ERROR = -32603
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_NOT_TAKEN = (425, 429)


class RemoteRefused(CadreError):
    """The remote agent does not do what it was asked, and would not if it were asked again."""


class RemoteAgentUnreachable(CadreError):
    """The remote agent has given no answer."""

    def __init__(self, text: str, *, may_have_arrived: bool) -> None:
        super().__init__(text)
        self.may_have_arrived = may_have_arrived


class _KnownInterface(NamedTuple):
    url: str
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

    async def call(self, method: str, params: dict[str, Any], traceparent: str) -> Any:
        """Return the result of the method. Raises RemoteRefused, RemoteAgentUnreachable."""
        place = await self._find()
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": VERSION} | ({"traceparent": traceparent} if traceparent else {})
        status, data = await self._request("POST", place.url, headers, msgspec.json.encode(body))
        try:
            answer = msgspec.json.decode(data)
        except msgspec.DecodeError:
            answer = None
        if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
            text = f"{self._name}: {error.get('message') or error.get('code')}"
            if error.get("code") == _INTERNAL_ERROR or status in _TEMPORARY:
                raise RemoteAgentUnreachable(text, may_have_arrived=True)
            raise RemoteRefused(text)
        if status in _TEMPORARY:
            raise RemoteAgentUnreachable(
                f"{self._name} answers {status}", may_have_arrived=status not in _NOT_TAKEN
            )
        if not isinstance(answer, dict) or "result" not in answer:
            raise RemoteRefused(f"{self._name}: {_why(status, place.url)}")
        return answer["result"]

    async def _find(self) -> _KnownInterface:
        """Return the address, by its card where the file names that."""
        now = time.monotonic()
        if self._place is None or self._place.until < now:
            if self._spec.url:
                self._place = _KnownInterface(self._spec.url, False, float("inf"))
            else:
                self._place = await self._by_card(now + _CARD_SECONDS)
        return self._place

    async def _by_card(self, until: float) -> _KnownInterface:
        url = self._spec.card
        try:
            status, data = await self._request("GET", url, {}, b"")
        except RemoteAgentUnreachable as error:
            raise RemoteAgentUnreachable(str(error), may_have_arrived=False) from error
        if status in _TEMPORARY:
            raise RemoteAgentUnreachable(f"{self._name}: its card answers {status}", may_have_arrived=False)
        try:
            card = msgspec.json.decode(data, type=_Card) if status == httpx2.codes.OK else None
        except msgspec.DecodeError as error:
            raise RemoteRefused(f"{self._name}: {url} is no card of A2A {VERSION}: {error}") from error
        if card is None:
            raise RemoteRefused(f"{self._name}: {_why(status, url)}")
        found = [
            one.url
            for one in card.interfaces
            if one.binding == "JSONRPC" and same_minor(one.version, VERSION)
        ]
        if not found:
            offered = ", ".join(f"{one.binding} {one.version}" for one in card.interfaces) or "nothing"
            raise RemoteRefused(
                f"{self._name}: its card offers {offered}, and Cadre speaks JSONRPC {VERSION}"
            )
        if self._spec.headers and _origin(found[0]) != _origin(url):
            raise RemoteRefused(
                f"{self._name}: its card leads to {found[0]}, where its headers are not sent: name that as `url`"
                " in place of the card if it is to have them"
            )
        return _KnownInterface(
            found[0], MESSAGES_ONCE in {one.uri for one in card.capabilities.extensions}, until
        )

    async def _request(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        references = References(self._folder, self._name)
        try:
            headers = self._headers(references) | {"Content-Type": "application/json"} | headers
        except SetupError as error:
            raise RemoteRefused(str(error)) from error
        timeout = httpx2.Timeout(_REQUEST_SECONDS, connect=_CONNECT_SECONDS)
        try:
            async with (
                httpx2.AsyncClient(timeout=timeout, **http_options(url)) as client,
                client.stream(method, url, headers=headers, content=body) as answer,
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
        return {
            name: references.resolve(f"headers.{name}", text) for name, text in self._spec.headers.items()
        }


class _Interface(msgspec.Struct, frozen=True):
    url: str
    binding: str = msgspec.field(name="protocolBinding", default="")
    version: str = msgspec.field(name="protocolVersion", default="")


class _Extension(msgspec.Struct, frozen=True):
    uri: str = ""


class _Capabilities(msgspec.Struct, frozen=True):
    extensions: list[_Extension] = []


class _Card(msgspec.Struct, frozen=True):
    interfaces: list[_Interface] = msgspec.field(name="supportedInterfaces")
    capabilities: _Capabilities = _Capabilities()


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _why(status: int, url: str) -> str:
    if status in (401, 403):
        return f"{url} answers {status}: give a key in `headers`"
    return f"{url} answers {status}, and not as A2A {VERSION}"


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
            raise CallInterrupted(f"the sender of a message to {self._agent} has died of it or been stopped")
        params = {"message": said, "configuration": {"returnImmediately": True, "historyLength": 0}}
        try:
            return task_of(await self._client.call("SendMessage", params, ctx.traceparent))
        except RemoteAgentUnreachable as error:
            if error.may_have_arrived and not await self._knows_messages():
                raise CallInterrupted(
                    f"{error}; its card does not say that a message can be sent again"
                ) from error
            return {"lost": str(error)}

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


MOST_INLINE_BYTES = 32 * 1024
"""A larger answer is a file: a run decides by what its journal holds whole."""
_MOST_SAID_CHARS = 2_000


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = msgspec.UNSET
    filename: str = ""
    media_type: str = ""


class _Message(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Status(msgspec.Struct, frozen=True):
    state: str
    message: _Message = _Message()


class _Artifact(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    status: _Status
    context_id: str = ""
    artifacts: list[_Artifact] = []


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
    said = "\n".join(part.text for part in status.message.parts if part.text is not None)
    found = _found(state, task=task.id, context=task.context_id, said=said[:_MOST_SAID_CHARS])
    if state == "completed":
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        return found | {"answer": _answer(parts or status.message.parts)}
    asked = [part.data for part in status.message.parts if part.data is not msgspec.UNSET]
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
            return File(base64.b64decode(part.raw), name=part.filename, media_type=part.media_type)
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
