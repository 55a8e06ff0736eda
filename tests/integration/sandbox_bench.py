"""A bench for the sandbox service: real processes, a caller that hears its inbox."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from msgspec.structs import replace

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded
from harness.nats_server import free_port
from harness.patience import patience, until
from integration.service_bench import ServiceBench, yielded
from sandbox.service_bench import block, reply

AGENT = "coder"

Answer = CodeYielded | CodeFinished


class Sandbox:
    """One process of the service."""

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.port = port
        self.process = process

    def children(self) -> list[int]:
        """Its processes that fork interpreters."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    found.append(int(stat.parent.name))
        return found

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def said(self) -> str:
        """All that it said, once it has ended."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


class Bench(ServiceBench[Answer]):
    """Asks for code as the agent `coder` would and hears what comes to its inbox; starts and kills sandboxes."""

    inboxes = f"*.{AGENT}.>"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sandboxes: list[Sandbox] = []

    def sender_of(self, answer: Answer) -> str:
        return "sandbox"

    # --- code

    def block(self, code: str, *, run: str = "", step: int = 1, pool: str = "default", **more: Any) -> CodeCall:
        call = block(code, run=run or uuid4().hex, step=step, **more)
        return replace(call, at=time.time(), agent=AGENT, pool=pool)

    def reply(self, call: CodeCall, answer: Answer, *values: Any) -> CodeCall:
        return reply(call, yielded(answer), *values)

    async def send(self, call: CodeCall) -> None:
        await self.bus.send(call, AGENT)

    async def publish(self, call: CodeCall, data: bytes) -> None:
        """These bytes in the place of the call, without a message id: each publication is stored."""
        await jetstream.append(self.nc, self.topology.code(call.pool, call.tree, call.run), data)

    async def ask(self, call: CodeCall) -> Answer:
        await self.send(call)
        return await self.answer(call)

    async def answer(self, call: CodeCall) -> Answer:
        """The answer to this very call. One that was answered before its sandbox was killed may be answered again, as
        its ack was lost with it: a run knows that answer, and so does this."""
        async with asyncio.timeout(patience()):
            while True:
                found = await self._inbox(call.run).get()
                if (found.block, found.exchange) >= (call.block, len(call.exchanges)):
                    return found

    def unread(self, call: CodeCall) -> int:
        return self._inbox(call.run).qsize()

    async def in_hand(self) -> int:
        """Calls that were delivered and are not acked."""
        infos = await self.consumers(self.topology.code_consumer("default"))
        return sum(info["num_ack_pending"] for info in infos)

    async def all_acked(self) -> bool:
        return await self.none_left(self.topology.code_consumer("default"))

    async def at_work(self) -> None:
        await until(self.in_hand)

    # --- processes

    async def launch(self, *options: str, **variables: str) -> Sandbox:
        name, port = f"sandbox-{len(self.sandboxes)}", free_port()
        environment = self.environment(name, CADRE_PORT=str(port), CADRE_SANDBOX_READY="1") | variables
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cadre_sandbox"),
            *options,
            env=environment,
            stderr=asyncio.subprocess.PIPE,
        )
        self.sandboxes.append(Sandbox(name, port, process))
        return self.sandboxes[-1]

    async def start(self, *options: str, **variables: str) -> Sandbox:
        sandbox = await self.launch(*options, **variables)
        assert sandbox.process.stderr is not None
        said = []
        async with asyncio.timeout(patience()):
            while b": ready" not in (line := await sandbox.process.stderr.readline()):
                said.append(line.decode())
                assert line, "".join(said)
        return sandbox

    async def readiness(self, sandbox: Sandbox) -> tuple[int, dict[str, str]]:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{sandbox.port}/readyz")
        return answer.status_code, answer.json()

    async def close(self) -> None:
        for sandbox in self.sandboxes:
            with contextlib.suppress(ProcessLookupError):
                sandbox.process.kill()
            await sandbox.process.wait()
