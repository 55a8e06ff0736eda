"""An agent by hand: the package `openai` and a loop. Its tool `lookup` is its own, `book` is Cadre's."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from cadre_program import CallFailed, tools
from openai import AsyncOpenAI

FOLDER = Path(os.environ.get("PROGRAM_FOLDER", "."))
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": {"type": "object", "properties": of}},
    }
    for name, of in (("lookup", {"item": {"type": "string"}}), ("book", {"n": {"type": "integer"}}))
]


def note(file: str, line: str) -> None:
    with (FOLDER / file).open("a") as out:
        out.write(f"{line}\n")


async def answer_to(call: dict[str, Any]) -> dict[str, Any]:
    told = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "lookup":
        note("lookups", told["item"])
        found = f"{told['item']}: known"
    else:
        try:
            found = str(await tools.call("book", **told))
        except CallFailed as error:
            found = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": found}


async def whole(client: AsyncOpenAI, messages: Any) -> dict[str, Any]:
    made = await client.chat.completions.create(model="mine", messages=messages, tools=TOOLS)
    return made.choices[0].message.model_dump(exclude_none=True)


async def streamed(client: AsyncOpenAI, messages: Any) -> dict[str, Any]:
    text, calls = "", dict[int, dict[str, Any]]()
    note("deltas", "--")
    async for chunk in await client.chat.completions.create(model="mine", messages=messages, tools=TOOLS, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.delta.content:
                note("deltas", choice.delta.content)
            for piece in choice.delta.tool_calls or []:
                function: Any = piece.function
                call = calls.setdefault(
                    piece.index,
                    {
                        "id": piece.id,
                        "type": "function",
                        "function": {"name": function.name, "arguments": ""},
                    },
                )
                call["function"]["arguments"] += function.arguments or ""
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls.values())} if calls else {})


async def book(task: str, ask: Any) -> str:
    note("pids", str(os.getpid()))
    client = AsyncOpenAI()
    messages: Any = [{"role": "system", "content": "Book."}, {"role": "user", "content": task}]
    while True:
        message = await ask(client, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        messages += await asyncio.gather(*map(answer_to, message["tool_calls"]))


async def parallel(task: str) -> list[str]:
    note("pids", str(os.getpid()))
    client = AsyncOpenAI()

    async def ask(part: int) -> str:
        made = await client.chat.completions.create(
            model="mine", messages=[{"role": "user", "content": f"{task} {part}"}]
        )
        return f"{part}: {made.choices[0].message.content}"

    return list(await asyncio.gather(*map(ask, range(4))))


async def main(task: str) -> Any:
    if task.startswith("parallel"):
        return await parallel(task)
    return await book(task, streamed if task.startswith("stream") else whole)
