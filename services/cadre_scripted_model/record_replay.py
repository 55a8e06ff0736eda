"""Record the answers of a real endpoint on disk, and replay them without one, found again by their requests, in any
order."""

import base64
import hashlib
import json
import re
from asyncio import CancelledError
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.errors import SettingError
from cadre_scripted_model.replies import ConnectionCut, PacedResponse
from cadre_scripted_model.request import ErrorReply, Reply, RequestView
from cadre_scripted_model.request_log import LogLine
from cadre_scripted_model.script_player import respond_with

FINGERPRINTED_KEYS = (
    *("model", "messages", "tools", "tool_choice", "response_format", "stream"),
    *("input", "instructions", "text"),
)

VOLATILE = re.compile(
    r"\b(?:call|run)_(?=[A-Za-z]*\d)[A-Za-z0-9]{8,}\b"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b[0-9a-f]{31}[0-9a-z]\b|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
)
"""Ids and times that differ from run to run: made-up call and run ids, UUIDs, ULIDs, timestamps."""

DATA_URL = re.compile(r"data:([\w/+.-]+);base64,([A-Za-z0-9+/=]{64,})")

_KEY_SHAPES = re.compile(
    r"\b(?:sk|gsk|csk|xai|hf|nvapi|pplx|r8|fw|tgp)[-_](?=[\w-]*\d)[\w-]{16,}|\bAIza[\w-]{30,}"
    r"|(?P<before>\bBearer )(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}"
    r"|(?P<parameter>[?&](?:key|api[-_]?key|(?:access_)?token|sig)=)[^&\s\"\\]+",
)
"""Texts that look like keys of model endpoints, and those in the query of a URL."""

_SECRET_PARAMETER = re.compile(r"key|token|secret|sig|pass|auth|code", re.IGNORECASE)
_HIDDEN = "***"


class Secrets:
    """Hides the key of an endpoint, and the secrets in its URL, in every form in which a text repeats them."""

    def __init__(self, key: str = "", url: str = "") -> None:
        parts = urlsplit(url)
        given = [key, unquote(parts.password or "")]
        given += [value for name, value in parse_qsl(parts.query) if _SECRET_PARAMETER.search(name)]
        forms = {form for one in given if one for form in (one, json.dumps(one)[1:-1], quote(one, safe=""))}
        self._forms = sorted(forms, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return the text with `***` in the place of each secret, and of what looks like a key."""
        for form in self._forms:
            text = text.replace(form, _HIDDEN)
        return _KEY_SHAPES.sub(lambda found: f"{found['before'] or found['parameter'] or ''}{_HIDDEN}", text)

    def hidden_bytes(self, content: bytes) -> bytes:
        """Return the bytes without secrets; all others stay as they are."""
        return self.hidden(content.decode("latin-1")).encode("latin-1")


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer, and the request that it answers."""

    prompt: str
    request: dict[str, Any]
    """The canonical request, of which the fingerprint is taken."""
    status: int
    content_type: str
    body: str
    """The answer, byte for byte: as text, or in base64 where it is no UTF-8."""
    is_base64: bool = False
    headers: dict[str, str] = {}
    """Those that say how long to wait, and what is left of a limit."""
    endpoint: str = ""
    """The endpoint's host, or its name."""
    origin: Literal["recorded", "reported", "written"] = "recorded"
    source: str = ""
    """The public report that the answer stands in, `owner/repository#number`, or the file,
    `owner/repository@commit:path`."""

    @property
    def content(self) -> bytes:
        """The bytes of the answer."""
        return base64.b64decode(self.body) if self.is_base64 else self.body.encode()


def canonical(body: dict[str, Any], secrets: Secrets | None = None) -> dict[str, Any]:
    """Return the request without secrets and what differs from run to run: equal for requests that ask the same."""
    kept = {key: body[key] for key in FINGERPRINTED_KEYS if body.get(key) is not None}
    names = {made_id: f"id-{n}" for n, made_id in enumerate(_call_ids(_conversation(body)))}
    text = json.dumps(_renamed(kept, names), sort_keys=True, ensure_ascii=False)
    for made_id, name in names.items():
        # A prompt may speak of a call by its id; one as short as "1" is no id in a text.
        if len(made_id) >= 8:
            text = re.sub(rf"(?<!\w){re.escape(made_id)}(?!\w)", name, text)
    text = DATA_URL.sub(lambda url: f"data:{url[1]};sha256,{_sha(url[2])}", text)
    text = (secrets or Secrets()).hidden(text)
    masked: dict[str, Any] = json.loads(VOLATILE.sub("~", text))
    return masked


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Return `value` with every id of a tool call replaced, wherever it stands as one."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {
            key: names.get(str(item), item) if key in ("id", "tool_call_id", "call_id") else _renamed(item, names)
            for key, item in value.items()
        }
    return value


def fingerprint(request: dict[str, Any]) -> str:
    """Return 20 hex digits of the SHA-256 of a canonical request."""
    return _sha(json.dumps(request, sort_keys=True))


class Cassettes:
    """A directory of `<fingerprint>-<n>.json`, n counting how often the process has seen the request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}

    def reset(self) -> None:
        """Begin with the first answer to each request again."""
        self._seen = {}

    def keep(self, cassette: Cassette) -> str:
        """Write it as the next answer to its request; returns the name of its file."""
        name = self._next(fingerprint(cassette.request))
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(msgspec.to_builtins(cassette), indent=1, ensure_ascii=False)
        (self._folder / name).write_text(text + "\n")
        return name

    def find(self, request: dict[str, Any]) -> tuple[str, Cassette] | None:
        """Return the next answer to this request and its file; after the last one, that again."""
        mark = fingerprint(request)
        self._next(mark)
        for n in range(self._seen[mark], 0, -1):
            path = self._folder / f"{mark}-{n}.json"
            if path.exists():
                return path.name, _read(path)
        return None

    def check(self) -> int:
        """Return the number of cassettes. Raises SettingError without a cassette, or with an unreadable one."""
        count = len([_read(path) for path in self._folder.glob("*.json")])
        if not count:
            raise SettingError(f"{self._folder}: no cassettes here; make some with --mode record")
        return count

    def nearest(self, request: dict[str, Any]) -> str:
        """Say where the recording most like this request differs from it first."""
        best, where = -1, ""
        for path in sorted(self._folder.glob("*.json")):
            old, new = _conversation(_read(path).request), _conversation(request)
            same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
            if same > best:
                best, where = same, _difference(path.name, same, old, new)
        return where

    def _next(self, mark: str) -> str:
        self._seen[mark] = self._seen.get(mark, 0) + 1
        return f"{mark}-{self._seen[mark]}.json"


def _difference(name: str, at: int, old: list[Any], new: list[Any]) -> str:
    if old == new:
        return f"{name} has the same messages: the model, the tools or `stream` differ"
    shown = [json.dumps(side[at], ensure_ascii=False)[:160] if at < len(side) else "nothing" for side in (old, new)]
    return f"{name} is nearest; message {at} was {shown[0]}, now it is {shown[1]}"


def _read(path: Path) -> Cassette:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Cassette)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingError(f"{path}: not a cassette: {error}; record it again") from error


def _conversation(body: dict[str, Any]) -> list[Any]:
    """Return the messages of a chat completion request, or the input items of the Responses API."""
    given = body.get("messages") or body.get("input") or []
    return given if isinstance(given, list) else [{"role": "user", "content": given}]


def _call_ids(messages: list[Any]) -> list[str]:
    ids: dict[str, None] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            ids[str(call.get("id"))] = None
        for key in ("tool_call_id", "call_id"):
            if message.get(key):
                ids[str(message[key])] = None
    return list(ids)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


FORWARDED_HEADERS = (
    *("content-type", "retry-after", "retry-after-ms"),
    *(f"x-ratelimit-{what}-{of}" for what in ("remaining", "reset") for of in ("requests", "tokens")),
)


class Recorder:
    """Passes requests on to the upstream; keeps each answer, errors too, byte for byte and without secrets: to its end,
    or as far as the client has read it."""

    def __init__(self, cassettes: Cassettes, upstream: str, key: str) -> None:
        self._cassettes = cassettes
        self._url = urlsplit(upstream)
        self._secrets = Secrets(key, upstream)
        headers = {"accept-encoding": "identity", "content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=httpx2.Timeout(600, connect=10), **http_options(upstream)
        )

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Return the upstream's answer as it comes, or 502 when it cannot be reached."""
        line.rule = "recording"
        path = "/chat/completions" if view.api == "chat" else "/responses"
        url = urlunsplit(self._url._replace(path=self._url.path.rstrip("/") + path))
        request = self._client.build_request("POST", url, content=msgspec.json.encode(body))
        try:
            answer = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            said = self._secrets.hidden(str(error)) or type(error).__name__
            message = f"cannot reach the upstream at {self._url.hostname}: {said}"
            return respond_with(Reply(error=ErrorReply(status=502, message=message)), view, line)
        headers = {name: answer.headers[name] for name in FORWARDED_HEADERS if name in answer.headers}
        return PacedResponse(answer.status_code, headers, self._record(answer, view, body, line), line)

    async def _record(
        self, answer: httpx2.Response, view: RequestView, body: dict[str, Any], line: LogLine
    ) -> AsyncGenerator[bytes, None]:
        received: list[bytes] = []
        try:
            async for piece in answer.aiter_bytes():
                received.append(piece)
                yield piece
        except httpx2.HTTPError as error:
            raise ConnectionCut from error
        except (CancelledError, GeneratorExit):
            # An agent reads no further than it needs, such as behind a block of code.
            if received:
                self._keep(answer, view, body, line, b"".join(received))
            raise
        finally:
            await answer.aclose()
        self._keep(answer, view, body, line, b"".join(received))

    def _keep(
        self,
        answer: httpx2.Response,
        view: RequestView,
        body: dict[str, Any],
        line: LogLine,
        received: bytes,
    ) -> None:
        text, is_base64 = self._as_text(received)
        cassette = Cassette(
            prompt=self._secrets.hidden(view.user)[:200],
            request=canonical(body, self._secrets),
            status=answer.status_code,
            content_type=answer.headers.get("content-type", "application/json"),
            body=text,
            is_base64=is_base64,
            headers={name: answer.headers[name] for name in FORWARDED_HEADERS[1:] if name in answer.headers},
            endpoint=self._url.hostname or "",
        )
        line.rule = f"recorded {self._cassettes.keep(cassette)}"

    def _as_text(self, content: bytes) -> tuple[str, bool]:
        """Return an answer without the key, which some endpoints repeat, and whether it had to be encoded."""
        content = self._secrets.hidden_bytes(content)
        try:
            return content.decode(), False
        except UnicodeDecodeError:
            return base64.b64encode(content).decode(), True

    def reset(self) -> None:
        """Begin with the first answer to each request again."""
        self._cassettes.reset()

    def release(self) -> None:
        """Do nothing: no answer is held."""


class Replayer:
    """Answers from cassettes only: a request that was never recorded is an error, not a live call."""

    def __init__(self, cassettes: Cassettes, key: str = "") -> None:
        self._cassettes = cassettes
        self._secrets = Secrets(key)

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Return the recorded answer, or 424 without one."""
        request = canonical(body, self._secrets)
        found = self._cassettes.find(request)
        if found is None:
            line.rule = "cassette miss"
            message = (
                f"no cassette {fingerprint(request)} for the prompt {view.user[:120]!r}: record it."
                f" {self._cassettes.nearest(request)}"
            )
            error = ErrorReply(status=424, message=message, type="cassette_miss", code="cassette_miss")
            return respond_with(Reply(error=error), view, line)
        name, cassette = found
        line.rule = f"cassette {name}"
        headers = {"content-type": cassette.content_type, **cassette.headers}
        return PacedResponse(cassette.status, headers, _whole(cassette.content), line)

    def reset(self) -> None:
        """Begin with the first answer to each request again."""
        self._cassettes.reset()

    def release(self) -> None:
        """Do nothing: no answer is held."""


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
