"""A program that speaks the Agent Client Protocol: what it does stands in the prompt, a line for each deed.

    say TEXT            it says that
    echo                it says the whole prompt
    think TEXT          it thinks that
    read NAME           a call of a tool that it owns
    write NAME TEXT     it asks for permission first
    spend IN OUT COST   it has used that
    wait NAME           until there is a file of this name
    die NAME            once: it leaves the file behind
    refuse              it does not take the prompt

Each deed is a line of the file `deeds` in its folder. With the argument `loads` it can open a session again, with
`sees` its prompts may hold images.
"""

import asyncio
import os
import signal
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, cast

import acp
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    Cost,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

LOADS, SEES = "loads" in sys.argv[1:], "sees" in sys.argv[1:]


class Program:
    """The agent's side of the protocol."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._calls = 0
        self._usage: Usage | None = None
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> InitializeResponse:
        sees = PromptCapabilities(image=SEES)
        able = AgentCapabilities(load_session=LOADS, prompt_capabilities=sees)
        return InitializeResponse(protocol_version=protocol_version, agent_capabilities=able)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self._folder = Path(cwd)
        return NewSessionResponse(session_id=f"session-{os.getpid()}")

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        self._folder = Path(cwd)
        # What was said before is sent once more.
        await self._client.session_update(session_id, update_agent_message_text("of before"))
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self._session, self._usage = session_id, None
        texts = [block.text for block in prompt if block.type == "text"]
        remembered = self._folder / f"{session_id}.prompt"
        if "has ended before you were done" in texts[0]:
            texts = [remembered.read_text()]
        elif not remembered.exists():
            remembered.write_text("\n".join(texts))
        for block in prompt:
            if block.type == "resource_link":
                await self._say(f"[{block.name}: {_read(block.uri)}]")
            if block.type == "image":
                await self._say(f"[{block.mime_type} of {len(b64decode(block.data))} bytes]")
        if texts[0].startswith("echo"):
            await self._say("\n".join(texts))
        for line in "\n".join(texts).splitlines():
            if (stop := await self._do(line.strip())) is not None:
                return PromptResponse(stop_reason=stop)
        return PromptResponse(stop_reason="end_turn", usage=self._usage)

    async def _do(self, line: str) -> Any:
        verb, _, rest = line.partition(" ")
        name, _, text = rest.partition(" ")
        if verb in ("say", "think", "read", "write", "spend", "wait", "die", "refuse"):
            with (self._folder / "deeds").open("a") as deeds:
                deeds.write(f"{line}\n")
        match verb:
            case "say":
                await self._say(rest)
            case "About":
                await self._say(f"heard: {line}")
            case "think":
                await self._update(update_agent_thought_text(rest))
                await self._update(update_plan([plan_entry(rest, status="in_progress")]))
            case "read":
                call = self._call()
                await self._update(start_tool_call(call, f"Read {name}", kind="read", status="in_progress"))
                found = (self._folder / name).read_text()
                content = [tool_content(text_block(found))]
                await self._update(update_tool_call(call, status="completed", content=content))
            case "write":
                await self._write(name, text)
            case "spend":
                await self._spend(*rest.split())
            case "wait":
                return await self._wait(self._folder / name)
            case "die" if not (self._folder / name).exists():
                (self._folder / name).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "refuse":
                return "refusal"
        return None

    async def _write(self, name: str, text: str) -> None:
        call = self._call()
        about = ToolCallUpdate(
            tool_call_id=call, title=f"Write {name}", kind="edit", status="pending", raw_input={"text": text}
        )
        options = [
            PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
            PermissionOption(option_id="no", name="Refuse", kind="reject_once"),
        ]
        answer = await self._client.request_permission(self._session, about, options)
        if getattr(answer.outcome, "option_id", None) == "yes":
            (self._folder / name).write_text(text)
            await self._update(update_tool_call(call, status="completed"))
            await self._say(f"wrote {name}")
        else:
            await self._update(update_tool_call(call, status="failed"))
            await self._say(f"was not allowed to write {name}")

    async def _spend(self, read: str, written: str, cost: str) -> None:
        total = int(read) + int(written)
        self._usage = Usage(input_tokens=int(read), output_tokens=int(written), total_tokens=total)
        spent = Cost(amount=float(cost), currency="USD")
        await self._update(UsageUpdate(session_update="usage_update", used=total, size=100_000, cost=spent))

    async def _wait(self, file: Path) -> str | None:
        while not file.exists():  # noqa: ASYNC240 - of the tests' doing
            if self._cancelled.is_set():
                return "cancelled"
            await asyncio.sleep(0.05)
        return None

    async def _say(self, text: str) -> None:
        await self._update(update_agent_message_text(text))

    async def _update(self, update: Any) -> None:
        await self._client.session_update(self._session, update)

    def _call(self) -> str:
        self._calls += 1
        return f"call-{self._calls}"


def _read(uri: str) -> str:
    return Path(uri.removeprefix("file://")).read_text(errors="replace")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast(acp.Agent, Program())))
