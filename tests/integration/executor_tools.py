"""Tools that meet the test at a socket: each reports that it is at work, then waits to be let go."""

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from cadre.tool import File, ToolContext, tool


def _leave_mark(folder: str, context: ToolContext) -> None:
    with Path(folder, "effects.txt").open("a") as file:
        file.write(f"{context.tool} {context.call_id}\n")


async def _meet(port: int, context: ToolContext) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    visit = {
        "tool": context.tool,
        "call": context.call_id,
        "deliveries": context.deliveries,
        "pid": os.getpid(),
    }
    writer.write(json.dumps(visit).encode() + b"\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer.decode().strip()


@tool
async def pay(folder: str, port: int, context: ToolContext) -> str:
    """Changes the world, once."""
    _leave_mark(folder, context)
    return await _meet(port, context)


@tool(idempotent=True)
async def put(folder: str, port: int, context: ToolContext) -> str:
    """Changes the world, the same way each time."""
    _leave_mark(folder, context)
    return await _meet(port, context)


@tool(read_only=True)
async def look(folder: str, port: int, context: ToolContext) -> str:
    """Changes nothing."""
    _leave_mark(folder, context)
    return await _meet(port, context)


@tool(read_only=True, concurrency=2)
async def narrow(folder: str, port: int, context: ToolContext) -> str:
    """Changes nothing, for two at once."""
    return await _meet(port, context)


@tool
def mark(folder: str, context: ToolContext) -> str:
    """Changes the world at once."""
    _leave_mark(folder, context)
    return "marked"


@tool
def block(port: int, context: ToolContext) -> str:
    """A plain function that is stuck until let go."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(json.dumps({"tool": context.tool, "call": context.call_id}).encode() + b"\n")
        return connection.recv(100).decode().strip()


@tool(timeout=0.2, concurrency=1)
def outlast(port: int, context: ToolContext) -> str:
    """A plain function that is stuck beyond its time."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(json.dumps({"tool": context.tool, "call": context.call_id}).encode() + b"\n")
        return connection.recv(100).decode().strip()


@tool(timeout=0.2)
async def slow() -> None:
    """Takes too long."""
    await asyncio.sleep(60)


@tool(timeout=0.2)
def slow_in_thread(context: ToolContext) -> None:
    """Takes too long."""
    context.cancelled.wait(60)


@tool
def compute(folder: str, seconds: float, context: ToolContext) -> int:
    """Keeps the interpreter busy."""
    _leave_mark(folder, context)
    rounds, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        rounds += 1
    return rounds


@tool(read_only=True)
def divide(a: int, b: int) -> float:
    """Divides."""
    return a / b


@tool(read_only=True)
async def deadly() -> None:
    """Ends the process that it runs in."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool(read_only=True)
def repeat(text: str, times: int) -> str:
    """Says it again and again."""
    return text * times


class Odd:
    def __str__(self) -> str:
        return "odd"


class Mute:
    def __str__(self) -> str:
        raise ValueError("no words")


@tool
def odd(kind: str) -> Any:
    """Returns what JSON cannot say."""
    cycle: list[Any] = []
    cycle.append(cycle)
    return {
        "alone": Odd(),
        "inside": [1, {"x": Odd()}],
        "mute": Mute(),
        "key": {(1, 2): 3},
        "cycle": cycle,
        "surrogate": "\ud800",
    }[kind]


@tool
async def heeds(port: int, context: ToolContext) -> str:
    """Stops when asked to."""
    meeting = asyncio.create_task(_meet(port, context))
    await context.cancelled.wait_async()
    meeting.cancel()
    return "stopped in time"


# --- files


_PNG = b"\x89PNG\r\n\x1a\n" + b"pixels " * 20


@tool(read_only=True)
def draw() -> dict[str, Any]:
    """Draws, twice the same."""
    return {"picture": File(_PNG, name="a.png"), "raw": _PNG}


@tool(idempotent=True)
async def keep(path: str, file: File, context: ToolContext) -> dict[str, Any]:
    """Keeps a file in the workspace."""
    entry = await context.workspace.write(path, file)
    return {"path": entry.path, "version": entry.version}


@tool(read_only=True)
def weigh(file: File) -> int:
    """Weighs a file."""
    return len(file.data)


@tool(read_only=True)
def long_text(chars: int) -> str:
    """As long as asked for."""
    return "x" * chars
