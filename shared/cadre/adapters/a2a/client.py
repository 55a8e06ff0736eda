"""Calls of JSON-RPC to one remote agent, by version 1.0 of A2A."""

import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.adapters.secret_references import References
from cadre.errors import CadreError, SettingError, SetupError
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.spec.remote_agent import RemoteSpec
from cadre.versions import same_minor

VERSION = "1.0"
MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest answer that is read."""

_REQUEST_SECONDS = 120.0
"""How long an answer may take: agents that do not answer at once do all their work in it."""
_CONNECT_SECONDS = 10.0
_CARD_SECONDS = 300.0
"""How long a card counts."""
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
        """Raises SetupError for a secret that is not there."""
        self._headers(References(self._folder, self._name))

    async def knows_messages(self) -> bool:
        """Whether a message that is sent again finds its task. Raises RemoteRefused, RemoteAgentUnreachable."""
        if self._spec.idempotent is not None:
            return self._spec.idempotent
        return (await self._find()).knows_messages

    async def call(self, method: str, params: dict[str, Any], traceparent: str) -> Any:
        """The result of the method. Raises RemoteRefused, RemoteAgentUnreachable."""
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
        """The address, by its card where the file names that."""
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
