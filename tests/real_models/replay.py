"""A real OpenAI-compatible HTTP server that gives recorded answers in their order, no matter what it is asked; the last
one again and again."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from cadre_scripted_model.app import build_app
from cadre_scripted_model.replies import PacedResponse
from cadre_scripted_model.request import ErrorReply, Reply, RequestView
from cadre_scripted_model.request_log import LogLine, RequestLog
from cadre_scripted_model.script_player import respond_with
from harness.nats_server import free_port
from harness.patience import patience

ANSWERS = Path(__file__).parent / "answers"


class RealAnswer(NamedTuple):
    """An answer as it went over the wire, and where it comes from."""

    name: str
    origin: str
    body: str


def read_answer(name: str) -> RealAnswer:
    """The fixture of that name: the recorded stream, or one that is made of what was written by hand."""
    kept = json.loads((ANSWERS / f"{name}.json").read_text())
    return RealAnswer(name, kept["origin"], kept.get("body") or _streamed(kept))


def _streamed(written: dict[str, Any]) -> str:
    """A stream of small pieces, as llama.cpp's server sends them."""
    text, calls = written.get("content", ""), written.get("calls", [])
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"content": text[at : at + 4]} for at in range(0, len(text), 4)]
    deltas += [
        {"tool_calls": [{"index": at, "id": f"c{at}", "type": "function", "function": call}]}
        for at, call in enumerate(calls)
    ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": written.get("finish", "stop")}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": len(deltas)}})
    events = [{"object": "chat.completion.chunk", "model": "by hand", **chunk} for chunk in chunks]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


class InOrder:
    """`cadre_scripted_model.app.ReplySource` of recorded answers, `pause` seconds between the chunks of each; requests
    over `context` tokens are refused as llama.cpp refuses them."""

    def __init__(self, answers: list[RealAnswer], pause: float, context: int | None) -> None:
        self._answers, self._pause, self._context = answers, pause, context
        self._given = 0

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        if self._context is not None and view.tokens > self._context:
            message = (
                f"request ({view.tokens} tokens) exceeds the available context size ({self._context} tokens), try"
                " increasing it"
            )
            refusal = ErrorReply(status=400, message=message, type="exceed_context_size_error")
            return respond_with(Reply(error=refusal), view, line)
        answer = self._answers[min(self._given, len(self._answers) - 1)]
        self._given += 1
        line.rule = answer.name
        headers = {"content-type": "text/event-stream; charset=utf-8"}
        return PacedResponse(200, headers, self._chunks(answer), line)

    async def _chunks(self, answer: RealAnswer) -> AsyncGenerator[bytes, None]:
        for chunk in answer.body.split("\n\n"):
            if chunk.strip():
                yield f"{chunk.strip()}\n\n".encode()
                await asyncio.sleep(self._pause)

    def release(self) -> None:
        """Does nothing: no answer is held."""

    def reset(self) -> None:
        self._given = 0


@contextmanager
def replaying(*names: str, pause: float = 0.0, context: int | None = None) -> Iterator[str]:
    """The URL of a server of these answers."""
    app = build_app(InOrder([read_answer(name) for name in names], pause, context), RequestLog())
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", ws="none"))
    serving = threading.Thread(target=server.run)
    serving.start()
    try:
        ready = threading.Event()
        for _ in range(int(patience() * 50)):
            if server.started or ready.wait(0.02):
                break
        assert server.started, "the server of recorded answers did not start"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        serving.join()
