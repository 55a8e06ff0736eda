"""A bench for tool executors: real processes, a caller that hears its inbox, tools that can be held."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.protocol.messages import EffectClaim, ToolCall, ToolResult
from harness.patience import patience
from integration.service_bench import ServiceBench

HERE = Path(__file__).parent
TOOLS = str(HERE / "executor_tools.py")


class Visit:
    """A tool at work, waiting to be let go."""

    def __init__(self, told: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.tool: str = told["tool"]
        self.call: str = told["call"]
        self.deliveries: int = told.get("deliveries", 0)
        self.pid: int = told.get("pid", 0)
        self._writer = writer

    async def let_go(self, word: str = "done") -> None:
        self._writer.write(word.encode() + b"\n")
        await self._writer.drain()


class Bench(ServiceBench[ToolResult]):
    """Sends calls as the agent `boss` would and hears what comes to its inbox; starts and kills executors."""

    inboxes = "*.boss.>"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.effects = NatsEffects(self.nc, self.topology)
        self.visits: asyncio.Queue[Visit] = asyncio.Queue()
        self.port = 0
        self._processes: list[asyncio.subprocess.Process] = []
        self._logs: list[asyncio.Task[bytes]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        door = await asyncio.start_server(self.open_door, "127.0.0.1", 0)
        self.port = door.sockets[0].getsockname()[1]
        yield
        door.close()

    def sender_of(self, answer: ToolResult) -> str:
        return answer.tool

    # --- calls

    def new_call(self, tool: str, arguments: dict[str, Any] | None = None, *, tree: str = "") -> ToolCall:
        tree = tree or uuid4().hex
        return ToolCall(
            id=f"{tree}_1_0",
            tree=tree,
            run=tree,
            at=time.time(),
            agent="boss",
            tool=tool,
            arguments={} if arguments is None else arguments,
        )

    def new_claim(self, call: ToolCall) -> EffectClaim:
        """Of an executor that is not there."""
        return EffectClaim(
            id=f"{call.id}:claim",
            tree=call.tree,
            run=call.run,
            at=1.0,
            call=call.id,
            executor="gone",
            call_seq=1,
            agent=call.agent,
            tool=call.tool,
        )

    def staged_call(self, tool: str) -> ToolCall:
        return self.new_call(tool, {"folder": str(self.folder), "port": self.port})

    async def publish(self, call: ToolCall) -> int:
        """Without a message id: each publication is stored. Returns its sequence."""
        subject = self.topology.call(call.tool, call.agent, call.tree, call.id)
        return await jetstream.append(self.nc, subject, encode(call))

    async def send(self, call: ToolCall) -> None:
        await self.bus.send(call, call.agent)

    async def answer(self, call: ToolCall) -> ToolResult:
        return await self.next_answer(call.id)

    async def ask(self, tool: str, **arguments: Any) -> ToolResult:
        call = self.new_call(tool, arguments)
        await self.send(call)
        return await self.answer(call)

    def unread(self, call: ToolCall) -> int:
        return self._inbox(call.id).qsize()

    async def all_acked(self, tool: str) -> bool:
        return await self.none_left(self.topology.tool_consumer(tool))

    # --- what tools do

    async def visit(self) -> Visit:
        return await asyncio.wait_for(self.visits.get(), patience())

    async def open_door(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.visits.put_nowait(Visit(json.loads(await reader.readline()), writer))

    def effects_of(self, call: ToolCall) -> int:
        """Return how often the world was changed by this call."""
        path = self.folder / "effects.txt"
        return path.read_text().splitlines().count(f"{call.tool} {call.id}") if path.exists() else 0

    # --- processes

    async def start(
        self, *options: str, script: str = "", may_die: bool = False, **variables: str
    ) -> asyncio.subprocess.Process:
        """An executor that is ready to work, or with `may_die` perhaps dead before it said so."""
        command = [script] if script else ["-m", "cadre_tools"]
        environment = self.environment(f"executor-{len(self._processes)}", **variables)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, TOOLS, *options, env=environment, stderr=asyncio.subprocess.PIPE
        )
        self._processes.append(process)
        assert process.stderr is not None
        said = []
        async with asyncio.timeout(patience()):
            while b"ready" not in (line := await process.stderr.readline()):
                said.append(line.decode())
                if not line and may_die:
                    break
                assert line, "".join(said)
        # Read on, or the pipe fills up.
        self._logs.append(asyncio.create_task(process.stderr.read()))
        return process

    async def last_words(self) -> str:
        """Kills the executor that was started last; what it has logged since it was ready."""
        await kill(self._processes[-1])
        return (await self._logs[-1]).decode()

    async def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*self._logs)
        for writer in self._writers:
            writer.close()


async def kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
