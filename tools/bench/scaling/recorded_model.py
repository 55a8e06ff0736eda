"""The scripted model in a thread of this process, which says of each request's bytes before it is answered."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cadre_scripted_model.app import build_app
from cadre_scripted_model.request_log import RequestLog
from cadre_scripted_model.script_player import ScriptPlayer, read_script
from harness.nats_server import free_port
from harness.patience import eventually


class BodiesTold:
    """An ASGI application behind which the real one answers."""

    def __init__(self, app: ASGIApp, tell: Callable[[bytes], None]) -> None:
        self._app, self._tell = app, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != "/v1/chat/completions":
            await self._app(scope, receive, send)
            return
        first = await receive()
        body, more = first.get("body", b""), first.get("more_body", False)
        while more:
            piece = await receive()
            body, more = body + piece.get("body", b""), piece.get("more_body", False)
        self._tell(body)
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, again, send)


@contextmanager
def recorded_model(script: Path, tell: Callable[[bytes], None]) -> Iterator[str]:
    """Its base URL, which ends in /v1."""
    app = BodiesTold(build_app(ScriptPlayer(read_script(script)), RequestLog()), tell)
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started, what="the model listens")
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()
