"""A bench for the memory service: real processes, callers that hear their inboxes, people who ask."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from cadre.adapters.nats.memory import NatsMemory
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.protocol.memory import MEMORY_TOOLS, ListRequest, Remembered, Selection
from cadre.protocol.messages import MemoryScope, Origin, ToolCall, ToolResult
from cadre.settings import Settings
from harness.nats_server import free_port
from harness.patience import eventually, patience, until
from integration.service_bench import ServiceBench

EVERY: list[MemoryScope] = ["run", "session", "agent", "team", "user"]


class Service:
    """One process of the service."""

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.port = port
        self.process = process
        self.lines: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(patience()):
            while ": ready" not in (line := (await self.process.stderr.readline()).decode()):
                self.lines.append(line)
                assert line, "".join(self.lines)
        # Read on, or the pipe fills up.
        self._reading = asyncio.create_task(self._read_on())

    async def _read_on(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        if self._reading is not None:
            await self._reading

    async def readiness(self) -> tuple[int, dict[str, str]]:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{self.port}/readyz")
        return answer.status_code, answer.json()


class Bench(ServiceBench[ToolResult]):
    """Calls the tools as agents would and asks as people would; starts and kills services."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.people = NatsMemory(self.nc, self.topology)
        self._mark = uuid4().hex[:8]
        self.agent = self.own("boss")
        self.services: list[Service] = []

    def sender_of(self, answer: ToolResult) -> str:
        return answer.tool

    def own(self, name: str) -> str:
        """A name that no other test of the deployment has."""
        return f"{name}-{self._mark}"

    # --- calls

    def call(
        self,
        tool: str,
        *,
        agent: str = "",
        tree: str = "",
        origin: Origin | None = None,
        place: str = "1_0",
        **arguments: Any,
    ) -> ToolCall:
        tree = tree or uuid4().hex
        return ToolCall(
            id=f"{tree}_{place}",
            tree=tree,
            run=tree,
            at=time.time(),
            agent=agent or self.agent,
            tool=tool,
            arguments=arguments,
            origin=origin,
        )

    async def publish(self, call: ToolCall, *, sender: str = "", message_id: str | None = None) -> None:
        """Past the adapter: as anyone who `sender` is, and stored however often it is published."""
        subject = self.topology.call(call.tool, sender or call.agent, call.tree, call.id)
        headers = {jetstream.MESSAGE_ID: message_id} if message_id is not None else None
        await jetstream.append(self.nc, subject, encode(call), headers=headers)

    async def ask(self, call: ToolCall) -> ToolResult:
        await self.bus.send(call, call.agent)
        return await self.answer(call)

    async def answer(self, call: ToolCall) -> ToolResult:
        return await self.next_answer(call.id)

    def unread(self, call: ToolCall) -> int:
        return self._inbox(call.id).qsize()

    async def remember(self, text: str, **about: Any) -> str:
        """Returns the memory's id."""
        result = await self.ask(self.call("remember", text=text, **about))
        assert result.error is None, result.error
        memory: str = result.output["memory"]
        return memory

    async def recall(self, query: str, k: int = 5, **about: Any) -> dict[str, Any]:
        result = await self.ask(self.call("recall", query=query, k=k, **about))
        assert result.error is None, result.error
        found: dict[str, Any] = result.output
        return found

    async def texts(self, query: str, **about: Any) -> list[str]:
        return [hit["text"] for hit in (await self.recall(query, **about))["hits"]]

    # --- what there is

    async def everything(self, selection: Selection | None = None) -> list[Remembered]:
        """Of a selection, or of all that the bench's own agent has remembered."""
        selection = selection or Selection(agent=self.agent)
        found: list[Remembered] = []
        after: str | None = None
        while True:
            page = await self.people.export(ListRequest(selection=selection, limit=50, after=after))
            found += page.memories
            after = page.next
            if after is None:
                return found

    async def all_embedded(self) -> None:
        async def none_pending() -> bool:
            return not (await self.people.stats()).pending

        await until(none_pending)

    async def all_acked(self) -> bool:
        return await self.none_left(*map(self.topology.tool_consumer, MEMORY_TOOLS))

    # --- processes

    async def launch(self, **variables: str) -> Service:
        """On the bench's own folder; by words only unless asked otherwise."""
        name, port = f"memory-{len(self.services)}", free_port()
        environment = environment_of(self.settings, self.folder, name, port) | variables
        process = await asyncio.create_subprocess_exec(*COMMAND, env=environment, stderr=asyncio.subprocess.PIPE)
        self.services.append(Service(name, port, process))
        return self.services[-1]

    async def start(self, **variables: str) -> Service:
        service = await self.launch(**variables)
        await service.ready()
        return service

    async def close(self) -> None:
        for service in self.services:
            await service.kill()


COMMAND = (sys.executable, "-m", "cadre_memory")


def environment_of(settings: Settings, folder: Path, name: str, port: int) -> dict[str, str]:
    """Of a service's process."""
    return {
        **os.environ,
        "CADRE_NATS_URL": settings.nats_url,
        "CADRE_PREFIX": settings.prefix,
        "CADRE_SHARDS": str(settings.shards),
        "CADRE_INSTANCE": name,
        "CADRE_PORT": str(port),
        "CADRE_MEMORY_DIRECTORY": str(folder / "memory"),
        "CADRE_MEMORY_EMBEDDINGS": "none",
    }


@contextlib.contextmanager
def running_service(settings: Settings, folder: Path, **variables: str) -> Iterator[str]:
    """A service for the tests of a module; gives its base URL."""
    port = free_port()
    log = folder / "memory.log"
    with log.open("ab") as said:
        process = subprocess.Popen(
            COMMAND, env=environment_of(settings, folder, "memory", port) | variables, stderr=said
        )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(f"{url}/readyz", timeout=2).status_code == 200
        return False

    try:
        eventually(ready, what="the memory service is ready")
        yield url
    finally:
        process.terminate()
        assert process.wait(timeout=patience()) == 0, log.read_text()
