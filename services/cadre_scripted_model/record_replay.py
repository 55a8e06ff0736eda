"""Records the answers of a real endpoint, and replays them without one."""

import base64
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre_scripted_model.cassettes import Cassette, Cassettes, canonical, fingerprint
from cadre_scripted_model.paced_response import ConnectionCut, PacedResponse
from cadre_scripted_model.reply import ErrorReply, Reply
from cadre_scripted_model.request import RequestView
from cadre_scripted_model.request_log import LogLine
from cadre_scripted_model.script_player import respond_with

FORWARDED_HEADERS = ("content-type", "retry-after", "retry-after-ms")


class Recorder:
    """Passes requests on to the upstream; keeps each complete answer, errors too, byte for byte and without the key."""

    def __init__(self, cassettes: Cassettes, upstream: str, key: str) -> None:
        self._cassettes = cassettes
        self._url = upstream.rstrip("/")
        self._key = key
        headers = {"accept-encoding": "identity", "content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=httpx2.Timeout(600, connect=10), **http_options(upstream)
        )

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Returns the upstream's answer as it comes, or 502 when it cannot be reached."""
        line.rule = "recording"
        path = "/chat/completions" if view.api == "chat" else "/responses"
        request = self._client.build_request("POST", self._url + path, content=msgspec.json.encode(body))
        try:
            answer = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            where = urlsplit(self._url).hostname
            message = f"cannot reach the upstream at {where}: {error or type(error).__name__}"
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
        finally:
            await answer.aclose()
        text, is_base64 = self._as_text(b"".join(received))
        cassette = Cassette(
            prompt=view.user[:200],
            request=canonical(body),
            status=answer.status_code,
            content_type=answer.headers.get("content-type", "application/json"),
            body=text,
            is_base64=is_base64,
            headers={name: answer.headers[name] for name in FORWARDED_HEADERS[1:] if name in answer.headers},
            endpoint=urlsplit(self._url).hostname or "",
        )
        line.rule = f"recorded {self._cassettes.keep(cassette)}"

    def _as_text(self, content: bytes) -> tuple[str, bool]:
        """Return an answer without the key, which some endpoints repeat, and whether it had to be encoded."""
        content = content.replace(self._key.encode(), b"***") if self._key else content
        try:
            return content.decode(), False
        except UnicodeDecodeError:
            return base64.b64encode(content).decode(), True

    def reset(self) -> None:
        """Begins with the first answer to each request again."""
        self._cassettes.reset()

    def release(self) -> None:
        """Does nothing: no answer is held."""


class Replayer:
    """Answers from cassettes only: a request that was never recorded is an error, not a live call."""

    def __init__(self, cassettes: Cassettes) -> None:
        self._cassettes = cassettes

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Returns the recorded answer, or 424 when there is none."""
        request = canonical(body)
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
        """Begins with the first answer to each request again."""
        self._cassettes.reset()

    def release(self) -> None:
        """Does nothing: no answer is held."""


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
