"""A gateway as its own process, a client of its deployment, and a writer of journals, for the gateway's tests."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams.provision import provision
from cadre.journal.entry import ArrivalRecord, BackPointers, Entry
from cadre.journal.events import AnyEvent, ModelCalled, RunAccepted, RunFinished
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.messages import ReplyTo, Task
from cadre.protocol.topology import Topology, task_id, tree_of
from cadre.protocol.usage import Usage
from cadre.settings import Settings
from cadre.spec.agent import AgentSpec
from harness import forks
from harness.nats_server import free_port
from harness.patience import patience, until
from harness.standstill import stand_still

FINISHED = RunFinished(state="success", output={"answer": 42}, steps=1, usage=Usage(5, 3, 1))
CALLED = ModelCalled(purpose="act", step=1, attempt=1, cause="c")


def new_run() -> str:
    return uuid4().hex


class GatewayProcess:
    """`python -m cadre_gateway` as its own process."""

    def __init__(self, nats_url: str, folder: Path, settings: Settings | None = None, **environment: str) -> None:
        """`settings` are those of the deployment that it joins; without them it has one that it owns."""
        self.settings = settings or Settings(nats_url=nats_url, prefix=f"gw{new_run()[:8]}", shards=2)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.index_file = folder / f"index-{self._port}.db"
        self._log = folder / f"gateway-{self._port}.log"
        self._environment = os.environ | {
            "CADRE_NATS_URL": nats_url,
            "CADRE_PREFIX": self.settings.prefix,
            "CADRE_SHARDS": "2",
            "CADRE_DRAIN_SECONDS": "5",
            "CADRE_INDEX_URL": f"sqlite://{self.index_file.absolute()}",
            **environment,
        }
        self.start()

    def launch(self) -> None:
        """Starts it, and waits for nothing."""
        command = ["cadre_gateway", "--port", str(self._port)]
        self._process = forks.start(command, self._environment, self._log)

    def start(self, seconds: float | None = None) -> None:
        """Returns when it is ready and lists all runs, within `seconds` or what is patient."""
        self.launch()
        try:
            self.wait_until_whole(seconds)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def wait_until_whole(self, seconds: float | None = None) -> None:
        """Until it lists all runs."""
        while "index" in self.wait_for(200, seconds=seconds):
            time.sleep(0.05)

    def wait_for(
        self, status: int, saying: str = "", *, code: str = "", seconds: float | None = None
    ) -> dict[str, Any]:
        """Return the body of /readyz once it answers with `status`, with this code and this text in what is missing."""
        deadline = time.monotonic() + (seconds or patience())
        while True:
            try:
                answer = httpx2.get(f"{self.url}/readyz", timeout=5, verify=False)
                body: dict[str, Any] = answer.json()
                is_said = saying in body.get("missing", "") and code in ("", body.get("code"))
                if answer.status_code == status and is_said:
                    return body
            except httpx2.TransportError:
                pass  # not listening yet
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=patience())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self, how: signal.Signals) -> None:
        """By this signal."""
        self._process.send_signal(how)
        self._process.wait(timeout=patience())

    def pause(self) -> None:
        """Until `go_on`."""
        stand_still(self.pid)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def peak_bytes(self) -> int:
        """The most memory that the process has had so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def log(self) -> str:
        return self._log.read_text()


class Scribe:
    """Writes the journal of one run, as the run's agent would."""

    def __init__(self, journal: NatsJournal, run: str, agent: str, parent: str | None = None) -> None:
        self._journal = journal
        self.run, self.agent, self.parent = run, agent, parent
        self.cause: str | None = None
        """The record that the next entry accounts for; its own unless given."""
        self._pointers = BackPointers()
        self._last = 0
        self._hash = ""
        self.entries = 0

    async def write(self, *events: AnyEvent, at: float | None = None) -> int:
        self.entries += 1
        n = self.entries
        entry = Entry(
            arrived=ArrivalRecord("Task"),
            run=self.run,
            agent=self.agent,
            n=n,
            cause=self.cause or f"{self.run}:cause:{n}",
            at=time.time() if at is None else at,
            events=list(events),
            prev=self._pointers.packed(),
        )
        appended = await self._journal.append(entry, self._last, before=self._hash)
        self._hash = appended.hash
        self._last = appended.seq
        self._pointers.note(appended.seq)
        self.cause = None
        return appended.seq

    def accepted(self, task: str = "Do it.", session: str | None = None, at: float | None = None) -> RunAccepted:
        message = Task(
            id=task_id(self.run),
            tree=tree_of(self.run),
            run=self.run,
            at=time.time() if at is None else at,
            agent=self.agent,
            task=task,
            session=session,
            reply_to=ReplyTo(agent="boss", run=self.parent) if self.parent else None,
        )
        return RunAccepted(
            task=message, spec=AgentSpec(name=self.agent, description="Works."), decided_by="tool_calling"
        )


class SseEvent:
    """One event of an event stream."""

    def __init__(self, name: str, mark: int | None, data: dict[str, Any]) -> None:
        self.name, self.mark, self.data = name, mark, data

    def __repr__(self) -> str:
        return f"{self.name}#{self.mark}"


async def sse_events(answer: httpx2.Response) -> AsyncIterator[SseEvent]:
    """The events of an open stream, comments and `retry:` left out; ends when the stream does."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            key, _, value = line.partition(":")
            if key:
                fields[key] = value.strip()
            continue
        if "data" in fields:
            mark = int(fields["id"]) if "id" in fields else None
            yield SseEvent(fields["event"], mark, json.loads(fields["data"]))
        fields = {}


class World:
    """A client of the deployment, next to the gateway."""

    def __init__(self, nc: NatsClient, topology: Topology, url: str) -> None:
        self.nc, self.topology = nc, topology
        self.blobs = NatsBlobs(nc, topology)
        self.journal = NatsJournal(nc, topology, self.blobs)
        self.bus = NatsBus(nc, topology, self.blobs)
        self.history = History(nc, topology, self.blobs)
        self.erasure = NatsErasure(nc, topology, self.blobs)
        self.registry = NatsRegistry(nc, topology)
        self.http = httpx2.AsyncClient(base_url=url, timeout=patience())

    async def announce(self, name: str, **fields: Any) -> None:
        card = AgentCard(name=name, description=f"{name} works.", **fields)
        presence = Presence(instance="t1", host="h", pid=1, started_at=1.0, agent=card)
        await self.registry.announce([presence], part=name)

    def scribe(self, run: str, agent: str = "boss", parent: str | None = None) -> Scribe:
        return Scribe(self.journal, run, agent, parent)

    async def finished_run(self, run: str, agent: str = "boss", session: str | None = None) -> None:
        scribe = self.scribe(run, agent)
        await scribe.write(scribe.accepted(session=session), CALLED)
        await scribe.write(FINISHED)

    async def ended_run(self, run: str = "", agent: str = "boss", session: str | None = None) -> str:
        """A run that is finished and listed as such; its id."""
        run = run or new_run()
        await self.finished_run(run, agent, session)
        await self.listed(run, state=FINISHED.state)
        return run

    async def write(self, scribe: Scribe, event: AnyEvent) -> int:
        """As soon as this client, too, is connected again."""

        async def connected() -> bool:
            await asyncio.sleep(0.01)
            return self.nc.is_connected

        await until(connected)
        return await scribe.write(event)

    async def listed(self, run: str, **query: str | list[str]) -> dict[str, Any]:
        """The run as the list shows it, once it does."""

        async def ask() -> dict[str, Any] | None:
            runs = (await self.http.get("/v1/runs", params={"limit": 500, **query})).json()["runs"]
            return next((one for one in runs if one["id"] == run), None)

        return await until(ask)

    async def read(self, run: str, count: int | None = None, **options: Any) -> list[SseEvent]:
        """`count` events of a run, or all to the stream's end."""
        found: list[SseEvent] = []
        async with (
            asyncio.timeout(patience()),
            self.http.stream("GET", f"/v1/runs/{run}/events", **options) as answer,
        ):
            assert answer.status_code == 200
            async for one in sse_events(answer):
                found.append(one)
                if len(found) == count:
                    break
        return found


@asynccontextmanager
async def entered(gateway: GatewayProcess) -> AsyncIterator[World]:
    """A client of the gateway's deployment."""
    nc = await connect(gateway.settings, "test")
    world = World(nc, await provision(nc, gateway.settings), gateway.url)
    await world.registry.start()
    try:
        yield world
    finally:
        await world.http.aclose()
        if nc.is_connected:
            await world.registry.withdraw()
        await world.registry.stop()
        await nc.close()


@asynccontextmanager
async def with_boss(gateway: GatewayProcess) -> AsyncIterator[World]:
    """The same while an agent `boss` is alive."""
    async with entered(gateway) as world:
        await world.announce("boss", tools=["add", "gone"], team=["helper"], labels={"role": "lead"})

        async def ask() -> bool:
            return bool((await world.http.get("/v1/agents")).json()["agents"])

        await until(ask)
        yield world
