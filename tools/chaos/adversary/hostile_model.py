"""A model endpoint that drips, breaks off, sends what is no text, and refuses: `python -m chaos.adversary.hostile_model
PORT SEED`. What it says when it answers follows from the request alone."""

import asyncio
import contextlib
import json
import random
import sys
from typing import Any

HOSTILE_SHARE = 0.35
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
"""Of each answer."""


def reply_to(messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The one call of the answer, by the task's first word: `held` spends once, `loop` looks for ever, `note` and `ask`
    answer at once."""
    task = next(m for m in messages if m["role"] == "user")
    text = task["content"] if isinstance(task["content"], str) else task["content"][0]["text"]
    words = next(line for line in text.splitlines() if line.split(" ")[0] in ("held", "loop", "note", "ask")).split()
    turns = sum(message["role"] == "tool" for message in messages)
    if words[0] == "held" and not turns:
        return "spend", {"job": words[-1]}
    if words[0] == "loop":
        return "look", {"job": f"{words[-1]}-{turns}"}
    return "final_answer", {"answer": f"done with {words[-1]}"}


def answer_bytes(request: dict[str, Any]) -> bytes:
    """The stream of an answer: the call, its usage, the end."""
    name, arguments = reply_to(request["messages"])
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    about = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "hostile"}
    choices = [
        [{"index": 0, "delta": {"role": "assistant", "content": "Thinking."}, "finish_reason": None}],
        [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    ]
    chunks = [about | {"choices": one} for one in choices] + [about | {"choices": [], "usage": USAGE}]
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"


class Hostile:
    """Answers requests; how, is chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
            if head.startswith(b"POST"):
                await self._answer(writer, answer_bytes(json.loads(body)))
            else:
                await _send(writer, 200, b'{"data":[]}', b"application/json")
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await asyncio.sleep(self._chance.uniform(0.02, 0.3))
        ways = ("drip", "cut", "no text", "429", "500")
        match self._chance.choice(ways) if self._chance.random() < HOSTILE_SHARE else "":
            case "drip":
                await _begin(writer, 200, len(data), b"text/event-stream")
                for at in range(0, len(data), 40):
                    writer.write(data[at : at + 40])
                    await writer.drain()
                    await asyncio.sleep(0.05)
            case "cut":
                await _begin(writer, 200, len(data), b"text/event-stream")
                writer.write(data[: self._chance.randrange(len(data))])
                await writer.drain()
            case "no text":
                await _send(writer, 200, data.replace(b"Thinking", b"Think\xff\xfe\xc3"), b"text/event-stream")
            case "429":
                await _send(
                    writer,
                    429,
                    b'{"error":{"message":"slow down"}}',
                    b"application/json",
                    b"retry-after: 1\r\n",
                )
            case "500":
                await _send(writer, 500, b"<html>\xff</html>", b"text/html")
            case _:
                await _send(writer, 200, data, b"text/event-stream")


async def _begin(writer: asyncio.StreamWriter, status: int, size: int, kind: bytes, more: bytes = b"") -> None:
    head = b"HTTP/1.1 %d x\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n%s\r\n"
    writer.write(head % (status, kind, size, more))


async def _send(writer: asyncio.StreamWriter, status: int, data: bytes, kind: bytes, more: bytes = b"") -> None:
    await _begin(writer, status, len(data), kind, more)
    writer.write(data)
    await writer.drain()


async def main(port: int, seed: int) -> None:
    """Serves until it is killed."""
    hostile = Hostile(random.Random(seed))
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
