"""A bench for the sandbox service: real processes, a caller that hears its inbox."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from msgspec.structs import replace
from nats.aio.client import Client

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import connect, settled
from cadre.adapters.nats.dead_letters import DeadLetter, NatsDeadLetters
from cadre.adapters.nats.objects.blobs import NatsBlobs
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import unpack_record
from cadre.protocol.code import BASE_IMPORTS, CodeExchange, CodeFunction, CodeReply
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, Record
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import free_port
from harness.patience import patience, until

AGENT = "coder"
LOOK = CodeFunction(name="look", signature="(what: str) -> str")

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


class Bench:
    """Asks for code as the agent `coder` would and hears what comes to its inbox; starts and kills sandboxes."""

    def __init__(self, settings: Settings, nc: Client, topology: Topology) -> None:
        self.settings = settings
        self.nc = nc
        self.topology = topology
        self.blobs = NatsBlobs(nc, topology)
        self.bus = NatsBus(nc, topology, self.blobs)
        self._answers: dict[str, asyncio.Queue[Answer]] = {}
        self.sandboxes: list[Sandbox] = []

    # --- code

    def block(
        self, code: str, *, run: str = "", step: int = 1, pool: str = "default", **more: Any
    ) -> CodeCall:
        run = run or uuid4().hex
        return CodeCall(
            id=f"{run}_{step}_0:0",
            tree=run.partition("_")[0],
            run=run,
            at=time.time(),
            agent=AGENT,
            pool=pool,
            block=f"{run}_{step}_0",
            code=code,
            functions=[LOOK],
            authorized_imports=BASE_IMPORTS,
            **more,
        )

    def reply(self, call: CodeCall, yielded: Answer, *values: Any) -> CodeCall:
        assert isinstance(yielded, CodeYielded), yielded
        replies = [CodeReply(value=value) for value in values]
        exchanges = [
            *call.exchanges,
            CodeExchange(calls=yielded.calls, replies=replies, clock=yielded.clock),
        ]
        return replace(call, id=f"{call.block}:{len(exchanges)}", exchanges=exchanges)

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

    def _inbox(self, run: str) -> asyncio.Queue[Answer]:
        return self._answers.setdefault(run, asyncio.Queue())

    async def hear(self) -> None:
        async def on_message(message: Any) -> None:
            assert self.topology.sender(message.subject) == "sandbox"
            record: Record = await unpack_record(message.data, self.blobs)
            assert isinstance(record, CodeYielded | CodeFinished)
            self._inbox(record.run).put_nowait(record)

        await self.nc.subscribe(f"{self.topology.prefix}.in.*.{AGENT}.>", cb=on_message)
        await settled(self.nc)

    async def in_hand(self) -> int:
        """Calls that were delivered and are not acked."""
        return sum(
            [(await self._consumer(shard))["num_ack_pending"] for shard in range(self.topology.shards)]
        )

    async def all_acked(self) -> bool:
        infos = [await self._consumer(shard) for shard in range(self.topology.shards)]
        return not any(info["num_pending"] or info["num_ack_pending"] for info in infos)

    async def _consumer(self, shard: int) -> dict[str, Any]:
        name = f"CONSUMER.INFO.{self.topology.stream(shard)}.{self.topology.code_consumer('default')}"
        return await jetstream.api(self.nc, name)

    async def at_work(self) -> None:
        async def is_so() -> bool:
            return await self.in_hand() > 0

        await until(is_so)

    async def dead_letter(self) -> DeadLetter:
        """The only one."""
        letters = NatsDeadLetters(self.nc, self.topology)

        async def is_there() -> bool:
            return bool(await letters.newest(1))

        await until(is_there)
        [letter] = await letters.newest(10)
        return letter

    # --- processes

    async def launch(self, *options: str, **variables: str) -> Sandbox:
        name, port = f"sandbox-{len(self.sandboxes)}", free_port()
        environment = {
            **os.environ,
            "CADRE_NATS_URL": self.settings.nats_url,
            "CADRE_PREFIX": self.settings.prefix,
            "CADRE_SHARDS": str(self.settings.shards),
            "CADRE_INSTANCE": name,
            "CADRE_PORT": str(port),
            "CADRE_SANDBOX_READY": "1",
            **variables,
        }
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
        await self.nc.close()


@contextlib.asynccontextmanager
async def open_bench(settings: Settings) -> AsyncIterator[Bench]:
    nc = await connect(settings, "test")
    bench = Bench(settings, nc, await provision(nc, settings))
    await bench.hear()
    try:
        yield bench
    finally:
        await bench.close()
