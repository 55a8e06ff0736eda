"""A program's side of its run: the process that runs it, and Cadre's tools in the form of its framework.

    from cadre_program import tools

The program host puts this file on the program's path and starts it with the program's own Python, which need not have
Cadre. It uses the standard library alone, and works from Python 3.9 on.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import dataclasses
import functools
import gc
import http.client
import importlib
import inspect
import json
import os
import random
import select
import signal
import sys
import threading
import traceback
import typing
import uuid

_URL = "CADRE_PROGRAM_URL"
_LINES = 12
_PR_SET_PDEATHSIG = 1


class CallFailed(Exception):
    """A call of a tool or member that came to an error, or that was not allowed."""


class CadreTools:
    """The tools and team members that the agent's file names."""

    def cards(self) -> list[dict[str, typing.Any]]:
        """Return the `name`, the `description` and the JSON Schema (`parameters`) of each."""
        found: list[dict[str, typing.Any]] = _get("/tools")["tools"]
        return found

    async def call(self, tool: str, /, **arguments: typing.Any) -> typing.Any:
        """Call a tool or member and return its result, a JSON value. Raises CallFailed."""
        return await _awaited(functools.partial(_call, tool, arguments, ""))

    def call_sync(self, tool: str, /, **arguments: typing.Any) -> typing.Any:
        """Call a tool or member as `call` does, from a function that cannot await. Raises CallFailed."""
        return _call(tool, arguments, "")

    def langchain(self) -> list[typing.Any]:
        """Return them as tools of LangChain and LangGraph."""
        BaseTool: typing.Any = _framework("langchain_core.tools", "BaseTool")

        id_of_call: contextvars.ContextVar[str] = contextvars.ContextVar("id_of_call", default="")

        class LangChainTool(BaseTool):  # type: ignore[misc]
            def run(self, *args: typing.Any, **about: typing.Any) -> typing.Any:
                id_of_call.set(about.get("tool_call_id") or "")
                return super().run(*args, **about)

            async def arun(self, *args: typing.Any, **about: typing.Any) -> typing.Any:
                id_of_call.set(about.get("tool_call_id") or "")
                return await super().arun(*args, **about)

            def _run(self, **arguments: typing.Any) -> str:
                return _said(self.name, _arguments(arguments), id_of_call.get())

            async def _arun(self, **arguments: typing.Any) -> str:
                given = _arguments(arguments)
                return str(await _awaited(functools.partial(_said, self.name, given, id_of_call.get())))

        def _arguments(given: dict[str, typing.Any]) -> dict[str, typing.Any]:
            return {key: value for key, value in given.items() if key not in ("run_manager", "config")}

        return [
            LangChainTool(name=one["name"], description=one["description"], args_schema=one["parameters"])
            for one in self.cards()
        ]

    def pydantic_ai(self) -> list[typing.Any]:
        """Return them as tools of pydantic-ai."""
        Tool: typing.Any = _framework("pydantic_ai", "Tool")

        def made(card: dict[str, typing.Any]) -> typing.Any:
            async def call(context: typing.Any, /, **arguments: typing.Any) -> str:
                id = context.tool_call_id or ""
                return str(await _awaited(functools.partial(_said, card["name"], arguments, id)))

            return Tool.from_schema(call, card["name"], card["description"], card["parameters"], takes_ctx=True)

        return [made(card) for card in self.cards()]

    def openai_agents(self) -> list[typing.Any]:
        """Return them as tools of the OpenAI Agents SDK."""
        FunctionTool: typing.Any = _framework("agents", "FunctionTool")

        def made(card: dict[str, typing.Any]) -> typing.Any:
            async def invoke(context: typing.Any, arguments: str) -> str:
                given = json.loads(arguments or "{}")
                return str(await _awaited(functools.partial(_said, card["name"], given, context.tool_call_id)))

            return FunctionTool(
                name=card["name"],
                description=card["description"],
                params_json_schema=card["parameters"],
                on_invoke_tool=invoke,
                strict_json_schema=False,
            )

        return [made(card) for card in self.cards()]

    def smolagents(self) -> list[typing.Any]:
        """Return them as tools of smolagents."""
        Tool: typing.Any = _framework("smolagents", "Tool")

        def forward(tool: typing.Any, **arguments: typing.Any) -> str:
            return _said(tool.name, arguments, "")

        def made(card: dict[str, typing.Any]) -> typing.Any:
            fields = {
                "name": card["name"],
                "description": card["description"],
                "inputs": _inputs_of(card["parameters"]),
                "output_type": "string",
                "skip_forward_signature_validation": True,
                "forward": forward,
            }
            return type(card["name"], (Tool,), fields)()

        return [made(card) for card in self.cards()]


tools = CadreTools()


def _framework(module: str, name: str) -> typing.Any:
    """Return a class of a framework, which is there where the program uses that."""
    return getattr(importlib.import_module(module), name)


def _inputs_of(schema: dict[str, typing.Any]) -> dict[str, dict[str, typing.Any]]:
    """Return the parameters of a tool as smolagents has them."""
    required = schema.get("required", [])
    found = {}
    for name, about in schema.get("properties", {}).items():
        kind = about.get("type") if isinstance(about, dict) else None
        known = kind in ("string", "boolean", "integer", "number", "array", "object")
        entry = {"type": kind if known else "any", "description": about.get("description") or name}
        found[name] = entry if name in required else dict(entry, nullable=True)
    return found


# --- the address of the run


def _get(path: str) -> typing.Any:
    return _request("GET", path, None)


def _post(path: str, body: typing.Any) -> typing.Any:
    return _request("POST", path, json.dumps(body).encode())


def _request(method: str, path: str, body: bytes | None) -> typing.Any:
    """Return the JSON answer of the address. `urllib.request` would load certificates first, and ask proxies."""
    host, _, token = _address().partition("://")[2].partition("/")
    connection = http.client.HTTPConnection(host)
    try:
        connection.request(method, f"/{token}{path}", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise CallFailed(data.decode(errors="replace"))
    return json.loads(data)


def _address() -> str:
    if _URL not in os.environ:
        raise RuntimeError(
            "there is no run here: call Cadre's tools within the function that `cadre member` serves, not while its"
            " file is imported"
        )
    return os.environ[_URL]


def _call(tool: str, arguments: dict[str, typing.Any], id: str) -> typing.Any:
    found = _post("/call", {"tool": tool, "arguments": arguments, "id": id})
    if found.get("error") is not None:
        raise CallFailed(found["error"])
    return found.get("output")


def _said(tool: str, arguments: dict[str, typing.Any], id: str) -> str:
    """Return what the call came to as a model reads it, an error too."""
    try:
        found = _call(tool, arguments, id)
    except CallFailed as error:
        return f"Error: {error}"
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


async def _awaited(work: typing.Callable[[], typing.Any]) -> typing.Any:
    """Do the work in a separate thread: calls may wait for people, and the loop's threads are few."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[typing.Any] = loop.create_future()

    def settle(result: typing.Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except BaseException as error:
            failed = error
        loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return await done


# --- the process that has imported the program, and the processes that it forks


_chance: random.Random | None = None


def _seeded_uuid4() -> uuid.UUID:
    if _chance is None:
        return _uuid4()
    return uuid.UUID(int=_chance.getrandbits(128), version=4)


_uuid4 = uuid.uuid4


def _serve(main: str, folder: str) -> None:
    """Import the program, then fork a process for each life that standard input asks for, until that ends."""
    said, heard = os.dup(1), 0
    os.dup2(2, 1)  # what the program prints is a log
    sys.path.insert(0, folder)
    sys.modules["cadre_program"] = sys.modules["__main__"]
    uuid.uuid4 = _seeded_uuid4
    function = _load(main, folder)
    clients = _clients_of_import()
    gc.freeze()  # the processes share the memory until they write to it
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lives: dict[str, int] = {}
    _say(said, {"ready": True})
    rest = b""
    while True:
        readable, _, _ = select.select([heard, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(lives, said)
        if heard not in readable:
            continue
        data = os.read(heard, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _obey(json.loads(line), lives, said, function, clients)
    for pid in lives.values():
        _kill(pid, signal.SIGKILL)


def _obey(
    order: dict[str, typing.Any],
    lives: dict[str, int],
    said: int,
    function: typing.Callable[..., typing.Any],
    clients: list[typing.Any],
) -> None:
    if "kill" in order:
        if (pid := lives.get(order["kill"])) is not None:
            _kill(pid, order["signal"])
        return
    pid = os.fork()
    if pid == 0:
        _live(order, said, function, clients)
    lives[order["life"]] = pid
    _say(said, {"began": order["life"], "pid": pid})


def _reap(lives: dict[str, int], said: int) -> None:
    for life, pid in list(lives.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            del lives[life]
            _say(said, {"ended": life, "status": os.waitstatus_to_exitcode(status)})


def _say(said: int, given: dict[str, typing.Any]) -> None:
    os.write(said, json.dumps(given).encode() + b"\n")


def _kill(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        os.kill(pid, number)  # it has not made a group yet


def _live(
    order: dict[str, typing.Any],
    said: int,
    function: typing.Callable[..., typing.Any],
    clients: list[typing.Any],
) -> None:
    """Run the function once, in a process that was forked for it, and say what it came to."""
    status = 1
    try:
        parent = os.getppid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
        os.close(said)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(order["environment"])
        for client in clients:
            client.base_url = order["environment"]["OPENAI_BASE_URL"]
            client.api_key = order["environment"]["OPENAI_API_KEY"]
        _seed(order["seed"])
        _post("/done", _outcome(function, order))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _outcome(function: typing.Callable[..., typing.Any], order: dict[str, typing.Any]) -> dict[str, typing.Any]:
    try:
        taken = len(inspect.signature(function).parameters)
        found = function(*[order["task"], order["arguments"]][:taken])
        if inspect.isawaitable(found):
            found = asyncio.run(_whole(found))
        return {"answer": json.loads(json.dumps(_plain(found)))}
    except BaseException as error:
        traceback.print_exc()
        lines = traceback.format_exc().strip().splitlines()
        return {"error": f"{type(error).__name__}: {error}", "lines": lines[-_LINES:]}


async def _whole(found: typing.Any) -> typing.Any:
    return await found


def _plain(value: typing.Any) -> typing.Any:
    """Return an answer as JSON can have it: models of pydantic and data classes as objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


def _seed(seed: str) -> None:
    """Give this life the chance that every life of its run has."""
    global _chance
    _chance = random.Random(seed)
    random.seed(seed)


def _clients_of_import() -> list[typing.Any]:
    """Return the OpenAI clients that were made while the program was imported: each life turns them to its address."""
    openai = sys.modules.get("openai")
    if openai is None:
        return []
    kinds, key = (openai.OpenAI, openai.AsyncOpenAI), os.environ.get("OPENAI_API_KEY", "")
    return [one for one in gc.get_objects() if issubclass(type(one), kinds) and one.api_key == key]


def _load(main: str, folder: str) -> typing.Callable[..., typing.Any]:
    """Return the agent's function. Ends the process with one line if it is missing."""
    source, _, name = main.rpartition(":")
    if source.endswith(".py"):
        path = os.path.abspath(os.path.join(folder, source))
        if not os.path.isfile(path):
            sys.exit(f"there is no file {path}")
        sys.path.insert(0, os.path.dirname(path))
        source = os.path.basename(path)[: -len(".py")]
    module = importlib.import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        sys.exit(f"{main}: {source} has no function {name}")
    return typing.cast("typing.Callable[..., typing.Any]", function)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
