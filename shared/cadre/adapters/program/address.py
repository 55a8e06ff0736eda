"""The address that programs ask: on this machine alone, with a token for each life in its path.

/TOKEN/v1/chat/completions, /TOKEN/v1/responses, /TOKEN/v1/models    as an OpenAI-compatible endpoint
/TOKEN/mcp                                                            tools and members, by MCP
/TOKEN/tools, /TOKEN/call, /TOKEN/done                                for `cadre_program`
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Any, NamedTuple

import uvicorn

from cadre.adapters.program.life import Life, LifeEnded, LifeLost, LiveStream, RequestRefused
from cadre.adapters.program.record import RecordEntry
from cadre.protocol.code import MESSAGES, Api, CodeReply
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec

DONE = b"data: [DONE]\n\n"


class StreamForm(NamedTuple):
    """The format of an API's streams."""

    whole: Callable[[dict[str, Any]], Iterable[bytes]]
    """Makes the stream of a whole answer."""
    piece: Callable[[dict[str, Any]], bytes]
    """Makes what is sent of one piece of an endpoint's stream."""
    begins: Callable[[dict[str, Any]], bool]
    """Says whether a stream may begin with a piece."""
    end: bytes = b""
    """The bytes after the last piece."""


def chat_piece(chunk: dict[str, Any], *, with_usage: bool) -> bytes:
    """Return a chunk of a chat completion as a server-sent event; b"" for one that holds only a usage which the program
    has not requested."""
    if with_usage:
        return _event(chunk)
    return _event({**chunk, "usage": None}) if chunk.get("choices") else b""


def response_piece(event: dict[str, Any]) -> bytes:
    """Return an event of the Responses API as a server-sent event."""
    return f"event: {event.get('type', '')}\n".encode() + _event(event)


def chat_stream(answer: dict[str, Any], *, with_usage: bool) -> Iterable[bytes]:
    """Yield a chat completion as server-sent events."""
    base = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
    base["object"] = "chat.completion.chunk"
    choices = answer.get("choices") or []
    for choice in choices:
        for delta in _deltas(choice.get("message") or {}):
            yield _event({**base, "choices": [_piece(choice, delta)]})
    for choice in choices:
        about = {key: value for key, value in choice.items() if key not in ("message", "finish_reason")}
        end = {**about, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
        yield _event({**base, "choices": [end]})
    if with_usage:
        yield _event({**base, "choices": [], "usage": answer.get("usage")})
    yield DONE


def _piece(choice: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": choice.get("index", 0), "delta": delta, "finish_reason": None}


def _deltas(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield {"role": message.get("role", "assistant"), "content": ""}
    for key, value in message.items():
        if key not in ("role", "tool_calls") and value is not None:
            yield {key: value}
    for place, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": place, **call}]}


def response_stream(answer: dict[str, Any]) -> Iterable[bytes]:
    """Yield a response of the Responses API as server-sent events."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    for place, item in enumerate(answer.get("output") or []):
        events += [(kind, {"output_index": place, **about}) for kind, about in _of_item(item)]
    failed = answer.get("status") in ("failed", "incomplete")
    events.append((f"response.{answer['status']}" if failed else "response.completed", {"response": answer}))
    for number, (kind, about) in enumerate(events):
        yield response_piece({"type": kind, "sequence_number": number, **about})


def _of_item(item: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    kind, id = item.get("type"), item.get("id", "")
    if kind == "message":
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
        for place, part in enumerate(item.get("content") or []):
            yield from _of_part(part, {"item_id": id, "content_index": place})
    elif kind == "function_call":
        arguments = item.get("arguments", "")
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "arguments": ""}}
        yield "response.function_call_arguments.delta", {"item_id": id, "delta": arguments}
        told = {"item_id": id, "arguments": arguments, "name": item.get("name", "")}
        yield "response.function_call_arguments.done", told
    else:
        yield "response.output_item.added", {"item": item}
    yield "response.output_item.done", {"item": item}


def _of_part(part: dict[str, Any], where: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    key = "refusal" if part.get("type") == "refusal" else "text"
    name, text = ("refusal" if key == "refusal" else "output_text"), part.get(key, "")
    more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
    yield "response.content_part.added", {**where, "part": {**part, key: ""}}
    yield f"response.{name}.delta", {**where, "delta": text, **more}
    yield f"response.{name}.done", {**where, key: text, **more}
    yield "response.content_part.done", {**where, "part": part}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


_ALIVE_SECONDS = 1.0
"""Between two signs of life to a client that waits for an answer."""

_NAME = "cadre"
_FUNCTIONS = ("function", "custom")
_RPC_UNKNOWN = -32601
_IMPORTING = "import"
"""The token of clients that are made while the program is imported, in place of that of a life."""

_REFUSED = {
    "embeddings": "embeddings are not served to programs, as the agent's model is no model of embeddings: give the"
    " program a client with the address and key of an endpoint for them (base_url=…), or a tool of Cadre that asks it",
    "messages": "Anthropic's API is not served to programs: ask the same model by chat completions, at OPENAI_BASE_URL,"
    " with OPENAI_API_KEY (a framework's client for OpenAI-compatible endpoints does)",
    "completions": "completions of a text are not served to programs: ask by chat completions",
    "images/generations": "images are not served to programs: give the program a client for them, by base_url=…",
    "audio/speech": "speech is not served to programs: give the program a client for them, by base_url=…",
    "audio/transcriptions": "speech is not served to programs: give the program a client for them, by base_url=…",
    "moderations": "moderations are not served to programs: give the program a client for them, by base_url=…",
}
"""Paths of other APIs of models, each with what to do."""

Handler = Callable[[Life, Mapping[str, str], Any, "_Response"], Awaitable[None]]


class ProgramAddress:
    """The HTTP server that the program's processes ask.

    Args:
        spec: the agent.
    """

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._lives: dict[str, Life] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self._server = _Loopback(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                log_config=None,
                lifespan="off",
                access_log=False,
                timeout_graceful_shutdown=1,
                timeout_keep_alive=600,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="programs")

    async def close(self) -> None:
        """Serve no more."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._listener.close()

    def add(self, life: Life) -> dict[str, str]:
        """Serve a life; return what its process must have in its environment."""
        self._lives[life.token] = life
        return self.environment(life.token)

    def remove(self, life: Life) -> None:
        """Serve a life no more: its requests get 410."""
        self._lives.pop(life.token, None)

    def environment(self, token: str = _IMPORTING) -> dict[str, str]:
        """Return the variables that lead to the address of a life, or that stand for it while a program is imported."""
        url = f"http://127.0.0.1:{self._port}/{token}"
        return {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": token,
            "CADRE_PROGRAM_URL": url,
            "CADRE_MCP_URL": f"{url}/mcp",
        }

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        _, token, path = (*scope["path"].split("/", 2), "", "")[:3]
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        response = _Response(send)
        try:
            data = await _body(receive)
            handler = self._routes().get((scope["method"], path))
            if handler is None:
                text = f"{scope['method']} /{path} is not served to programs: models are asked by chat completions or"
                raise RequestRefused(404, "not-found", f"{text} responses, and tools by /mcp")
            await handler(self._life(token), headers, _json(data), response)
        except RequestRefused as error:
            await response.refuse(error)

    def _routes(self) -> dict[tuple[str, str], Handler]:
        return {
            ("POST", "v1/chat/completions"): self._chat,
            ("POST", "v1/responses"): self._respond,
            ("GET", "v1/models"): self._models,
            **{("POST", f"v1/{path}"): _refusing(path, text) for path, text in _REFUSED.items()},
            ("GET", "tools"): _tools,
            ("POST", "call"): _call,
            ("POST", "done"): _done,
            ("POST", "mcp"): _mcp,
        }

    def _life(self, token: str) -> Life:
        if token == _IMPORTING:
            text = "this client was made while the program was imported, and belongs to no run: make it in the function"
            raise RequestRefused(409, "no-run", text)
        life = self._lives.get(token)
        if life is None or life.is_over:
            raise RequestRefused(410, "life-over", "this process is not the one that works for the run any more")
        return life

    async def _chat(self, life: Life, headers: Mapping[str, str], body: Any, response: "_Response") -> None:
        options = body.get("stream_options") if isinstance(body, dict) else None
        usage = isinstance(options, dict) and bool(options.get("include_usage"))
        form = StreamForm(
            lambda raw: chat_stream(raw, with_usage=usage),
            lambda chunk: chat_piece(chunk, with_usage=usage),
            lambda chunk: isinstance(chunk.get("choices"), list),
            DONE,
        )
        await self._model(life, headers, "chat", body, response, form)

    async def _respond(self, life: Life, headers: Mapping[str, str], body: Any, response: "_Response") -> None:
        form = StreamForm(response_stream, response_piece, lambda event: event.get("type") == "response.created")
        await self._model(life, headers, "responses", body, response, form)

    async def _model(
        self,
        life: Life,
        headers: Mapping[str, str],
        api: Api,
        body: Any,
        response: "_Response",
        form: StreamForm,
    ) -> None:
        self._check(api, body)
        streams = bool(body.get("stream"))
        given = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        repeated = headers.get("x-stainless-retry-count", "0") != "0"
        response.streams = streams
        live = LiveStream(form.begins) if streams else None
        asked = life.ask_model(api, given, is_repeated=repeated, live=live)
        entry = await response.waiting(asked, live, form)
        try:
            raw = entry.reply.value if entry.reply is not None else None
            if not isinstance(raw, dict):
                raise RequestRefused(502, "no-answer", "the answer of the model is not there")
            if live is not None and live.given:
                await _finish_live(life, live, form, response)
            elif streams:
                await response.finish(form.whole(raw))
            else:
                await response.json(raw)
        finally:
            life.release(entry)

    def _check(self, api: Api, body: Any) -> None:
        """Raise RequestRefused for what is no request, or names what the agent's file does not allow."""
        if not isinstance(body, dict) or not isinstance(body.get(MESSAGES[api]), list | str):
            raise RequestRefused(400, "invalid-request", f"the body needs a key {MESSAGES[api]}")
        if body.get("background"):
            raise RequestRefused(400, "invalid-request", "background: an answer is awaited, however long it takes")
        allowed = {str(tool.get("type")) for tool in self._spec.model.native_tools}
        for tool in body.get("tools") or []:
            kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
            if kind not in _FUNCTIONS and kind not in allowed:
                text = f"tools: {kind} is run by the endpoint, and the agent's model.native_tools does not name it"
                raise RequestRefused(400, "invalid-request", text)

    async def _models(self, life: Life, headers: Mapping[str, str], body: Any, response: "_Response") -> None:
        name = self._spec.model.name or _NAME
        await response.json({"object": "list", "data": [{"id": name, "object": "model", "owned_by": _NAME}]})


class _Loopback(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _finish_live(life: Life, live: LiveStream, form: StreamForm, response: "_Response") -> None:
    """End a stream whose beginning the program has been given. Raises RequestRefused, and ends the life, where its rest
    is not there: the next life is given the answer whole."""
    if not await live.is_whole():
        life.end(LifeLost("the stream of an answer broke off"))
        raise RequestRefused(410, "life-over", "the stream broke off: the program runs again")
    await response.finish([*map(form.piece, live.give()), form.end])


async def _is_done(task: asyncio.Task[Any], live: LiveStream | None) -> bool:
    """Return True once the task is done, False after a while or when pieces of the stream have come."""
    come = asyncio.ensure_future(live.come()) if live is not None else None
    try:
        both: set[asyncio.Task[Any]] = {task} if come is None else {task, come}
        await asyncio.wait(both, timeout=_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if come is not None:
            come.cancel()
    return task.done()


class _Response:
    """One answer of HTTP, which may be kept alive before it is known."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._begun = False
        self.streams = False

    async def waiting(
        self, work: Awaitable[RecordEntry], live: LiveStream | None = None, form: StreamForm | None = None
    ) -> RecordEntry:
        """Await the work with signs of life: the pieces of a stream that come meanwhile, white space before JSON,
        comments in a stream. Raises RequestRefused."""
        task = asyncio.ensure_future(work)
        try:
            while not await _is_done(task, live):
                pieces = [form.piece(one) for one in live.give()] if live is not None and form is not None else []
                for piece in pieces or [b": waiting\n\n" if self.streams else b" "]:
                    await self._write(piece)
        finally:
            task.cancel()
        return task.result()

    async def json(self, value: Any) -> None:
        """Answer with a JSON value."""
        await self.finish([json.dumps(value, ensure_ascii=False).encode()])

    async def finish(self, pieces: Iterable[bytes]) -> None:
        """Answer with these, one after another."""
        for piece in pieces:
            await self._write(piece)
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: RequestRefused) -> None:
        """Answer with an error as OpenAI's clients read it; they are not to try again."""
        about = {"message": str(error), "code": error.code, "type": "cadre", "param": None}
        body = json.dumps({"error": about}).encode()
        if self._begun:
            # Its status is out: the body says it, and a stream in its own form.
            await self.finish([b"data: " + body + b"\n\n" if self.streams else body])
            return
        self.streams = False
        await self._begin(error.status, [(b"x-should-retry", b"false")])
        await self.finish([body])

    async def no_content(self) -> None:
        """Answer that a notification was taken."""
        await self._begin(202, [])
        await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        kind = b"text/event-stream" if self.streams else b"application/json"
        self._begun = True
        headers = [(b"content-type", kind), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, piece: bytes) -> None:
        if not self._begun:
            await self._begin(200, [])
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _refusing(path: str, text: str) -> Handler:
    async def refuse(life: Life, headers: Mapping[str, str], body: Any, response: "_Response") -> None:
        raise RequestRefused(404, "not-served", f"/{path}: {text}")

    return refuse


async def _tools(life: Life, headers: Mapping[str, str], body: Any, response: _Response) -> None:
    await response.json({"tools": life.tools})


async def _call(life: Life, headers: Mapping[str, str], body: Any, response: _Response) -> None:
    reply = await _called(life, body.get("tool"), body.get("arguments"), body.get("id") or "", response)
    given = {"error": reply.error} if reply.error is not None else {"output": reply.value}
    await response.json(given)


async def _called(life: Life, tool: Any, arguments: Any, id: str, response: _Response) -> CodeReply:
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        raise RequestRefused(400, "invalid-request", "a call needs the name of a tool and an object of arguments")
    entry = await response.waiting(life.call(tool, arguments, id))
    life.release(entry)
    assert entry.reply is not None
    return entry.reply


async def _done(life: Life, headers: Mapping[str, str], body: Any, response: _Response) -> None:
    if "error" in body:
        lines = "\n".join(body.get("lines") or [])
        life.end(LifeEnded(error=ErrorInfo("program-failed", f"{body['error']}\n{lines}".strip())))
    else:
        life.end(LifeEnded(body.get("answer")))
    await response.json({})


async def _mcp(life: Life, headers: Mapping[str, str], body: Any, response: _Response) -> None:
    """Answer one message of the Model Context Protocol (streamable HTTP, an answer in JSON each)."""
    if not isinstance(body, dict) or "id" not in body:
        await response.no_content()
        return
    given = body.get("params") or {}
    match body.get("method"):
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": given.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": _NAME, "version": "1"},
            }
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": [_mcp_tool(one) for one in life.tools]}
        case "tools/call":
            reply = await _called(life, given.get("name"), given.get("arguments") or {}, "", response)
            said = reply.error if reply.error is not None else reply.value
            text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
            content = [{"type": "text", "text": text}]
            result = {"content": content, "isError": reply.error is not None}
        case other:
            error = {"code": _RPC_UNKNOWN, "message": f"{other} is not served"}
            await response.json({"jsonrpc": "2.0", "id": body["id"], "error": error})
            return
    await response.json({"jsonrpc": "2.0", "id": body["id"], "result": result})


def _mcp_tool(card: dict[str, Any]) -> dict[str, Any]:
    return {"name": card["name"], "description": card["description"], "inputSchema": card["parameters"]}


async def _body(receive: Any) -> bytes:
    pieces = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    return b"".join(pieces)


def _json(data: bytes) -> Any:
    """Return the JSON value of a body; {} for none. Raises RequestRefused."""
    try:
        return json.loads(data or b"{}")
    except ValueError:
        raise RequestRefused(400, "invalid-request", "the body is no JSON") from None
