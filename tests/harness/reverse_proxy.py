"""A reverse proxy in this process: it passes on requests below a path, with or without that path."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Self

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from harness.nats_server import free_port
from harness.patience import eventually, patience

_DROPPED = ("content-length", "transfer-encoding", "content-encoding")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class ReverseProxy:
    """Passes requests on to `target`, those below `prefix` alone. Use it as a context manager."""

    def __init__(
        self,
        target: Callable[[], str],
        prefix: str = "",
        *,
        strips: bool = False,
        change: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """`target` is asked with each request; `strips` takes the prefix away; `change` changes bodies."""
        self._target, self._prefix, self._strips, self._change = target, prefix, strips, change
        port = free_port()
        self.host = f"127.0.0.1:{port}"
        self._client = httpx2.AsyncClient(timeout=patience(), verify=False)
        routes = [Route("/{path:path}", self._forward, methods=_METHODS)]
        # Streams that clients leave open end with the proxy.
        config = uvicorn.Config(
            Starlette(routes=routes, lifespan=self._lifespan),
            "127.0.0.1",
            port,
            log_level="warning",
            loop="asyncio",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @property
    def url(self) -> str:
        """The address that clients ask at, with the prefix."""
        return f"http://{self.host}{self._prefix}"

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self._server.started, what="the proxy listens")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def _forward(self, request: Request) -> Response:
        path = request.url.path
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            return Response("another program's", 404)
        if self._strips:
            path = path[len(self._prefix) :] or "/"
        headers = {key: text for key, text in request.headers.items() if key != "content-length"}
        sent = self._client.build_request(
            request.method,
            f"{self._target()}{path}",
            params=request.query_params,
            content=self._change(await request.body()),
            headers=headers,
        )
        answer = await self._client.send(sent, stream=True)
        found = StreamingResponse(self._pieces(answer), answer.status_code)
        found.raw_headers = [
            (key.lower(), value) for key, value in answer.headers.raw if key.lower().decode() not in _DROPPED
        ]
        return found

    async def _pieces(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        finally:
            await answer.aclose()
