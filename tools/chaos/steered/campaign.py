"""One deployment through three rounds: kills at ticks and amid cancels and messages; the index away; the only replica
of each kind of service away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NamedTuple

from chaos.adversary.audit import read_shards
from chaos.steered.clients import EVERY_SECONDS, Clients
from chaos.steered.judge import Absence, Seen, judge
from harness.patience import patience
from harness.postgres_server import PostgresServer, postgres_programs
from harness.stack import Stack

Round = Literal["ticks", "cancels", "messages", "index", "absences"]

ROUNDS: tuple[Round, ...] = ("ticks", "cancels", "messages", "index", "absences")
"""The first three at once, under kills."""

TEAM = Path(__file__).parent / "team"
TOOLS = Path(__file__).parents[1] / "team" / "tools.py"
GATEWAYS = ("gateway-1", "gateway-2")
ALONE = ("loner", "fetching", "memory")
"""The services of one process: an agent, a tool, the memory."""

ABSENT_SECONDS = 20.0
_INDEX_AWAY_SECONDS = 5.0
_LATE_SECONDS = 3.0
_PACE_SECONDS = 0.7
_ALL_AT_ONCE = 0.4
"""The probability that every replica of a victim dies with it."""
_VICTIMS = ("booker-1", "booker-2", "listener-1", "listener-2", "ticker-1", "tools-1", "tools-2")


class Steered(NamedTuple):
    """The outcome of a campaign."""

    seen: Seen
    violations: list[str]
    strikes: list[str]
    ticks: int
    folder: Path
    database: str

    def summary(self) -> str:
        """Some lines for a person."""
        seen = self.seen
        lines = [
            f"  steered   {len(seen.runs):4}   runs; {len(self.strikes)} strikes; {self.ticks} ticks;"
            f" {len(seen.cancels)} runs cancelled {sum(map(len, seen.cancels.values()))} times;"
            f" {sum(map(len, seen.told.values()))} messages; index ({self.database}) away {len(seen.index_away)} times;"
            f" away: {', '.join(one.what for one in seen.away) or 'nothing'}"
        ]
        lines += [f"  - {line[:400]}" for line in self.violations[:25]]
        verdict = f"{len(self.violations)} VIOLATIONS" if self.violations else "The judge found nothing"
        return "\n".join([*lines, f"{verdict}. Logs: {self.folder}"])


async def steer(
    seed: int,
    seconds: float,
    folder: Path,
    rounds: Collection[Round] = ROUNDS,
    absent: float = ABSENT_SECONDS,
) -> Steered:
    """Runs the rounds; kills go on for `seconds`, and who is alone is away for `absent` seconds each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)  # noqa: ASYNC240 - nothing else runs yet
    programs, late = postgres_programs(), patience(_LATE_SECONDS)
    with contextlib.ExitStack() as held:
        # One for each service that may be starting: all of them wait for NATS, which is started by one as well.
        threads = held.enter_context(ThreadPoolExecutor(32))
        asyncio.get_running_loop().set_default_executor(threads)
        postgres = held.enter_context(PostgresServer(programs)) if programs is not None else None
        stack = held.enter_context(Stack(folder))
        _add_all(stack, postgres.url if postgres is not None else "")
        stack.start_all()
        urls = [stack.services[name].url for name in GATEWAYS]
        war = War(stack, Clients(urls, Seen(), seed), random.Random(seed))
        if kinds := [one for one in ROUNDS[:3] if one in rounds]:
            await war.under_kills(kinds, seconds)
        if "index" in rounds:
            await war.without_index(postgres, _INDEX_AWAY_SECONDS + late)
        if "absences" in rounds:
            await war.without_the_only_ones(absent)
        messages = await read_shards(stack.nats.url)
    found = war.troubles + judge(messages, war.clients.seen, late=late)
    (folder / "seen.json").write_text(json.dumps(asdict(war.clients.seen), indent=1))
    (folder / "strikes.txt").write_text("".join(f"{line}\n" for line in war.strikes))
    (folder / "violations.txt").write_text("".join(f"{line}\n" for line in found))
    ticks = sum(b'"task":"tick ' in one.data for many in messages.values() for one in many if ".run." in one.subject)
    database = "PostgreSQL" if postgres is not None else "SQLite"
    return Steered(war.clients.seen, found, war.strikes, ticks, folder, database)


def _add_all(stack: Stack, index_url: str) -> None:
    stack.model(TEAM / "script.yaml")
    for name in _VICTIMS:
        if name.startswith("tools"):
            effects = str(stack.folder / "effects.txt")
            stack.add(name, "cadre_tools", TOOLS, start=False, CHAOS_EFFECTS=effects)
        else:
            stack.agent(TEAM / f"{name.partition('-')[0]}.yaml", name=name, start=False)
    stack.agent(TEAM / "loner.yaml", start=False)
    stack.tools(TEAM / "fetching.py", start=False)
    settings = {"CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
    stack.add("memory", "cadre_memory", start=False, **settings)
    for name in GATEWAYS:
        url = index_url or f"sqlite:///{stack.folder / name}.db"
        stack.add(name, "cadre_gateway", start=False, CADRE_INDEX_URL=url)


class War:
    """The strikes, and the work that goes on meanwhile."""

    def __init__(self, stack: Stack, clients: Clients, chance: random.Random) -> None:
        self._stack = stack
        self.clients = clients
        self._chance = chance
        self.strikes: list[str] = []
        self.troubles: list[str] = []

    async def under_kills(self, kinds: Collection[Round], seconds: float) -> None:
        """Cancels, messages and ticks, while agents and tools are killed at any time and gateways at the ticks."""
        ends = time.monotonic() + seconds
        async with contextlib.AsyncExitStack() as held:
            first = await held.enter_async_context(self.clients.ticking()) if "ticks" in kinds else time.time()
            striking = [
                asyncio.create_task(self._kill_until(ends)),
                asyncio.create_task(self._kill_at_ticks(first, ends)),
            ]
            await self._work_until(ends, [one for one in kinds if one != "ticks"])
            await asyncio.gather(*striking)

    async def without_index(self, postgres: PostgresServer | None, seconds: float) -> None:
        """Followers go on hearing while the index's database is stopped, or its files are locked."""
        listening = [asyncio.create_task(self.clients.listen(f"far-{number}", messages=60)) for number in range(3)]
        async with asyncio.timeout(patience(60)):
            await self.clients.telling.wait()
        away = self._stopped(postgres) if postgres is not None else self._locked()
        async with away:
            began = time.time()
            self.strikes.append(f"index away at {began:.1f}")
            late = asyncio.create_task(self.clients.listen("late", messages=4))
            await asyncio.sleep(seconds)
            ended = time.time()
        self.clients.seen.index_away.append(Absence("the index", began, ended))
        await self._all_end([*listening, late])

    async def without_the_only_ones(self, absent: float) -> None:
        """Each service that has one process is gone for a time, and runs that need it are begun meanwhile."""
        for name in ALONE:
            await self.clients.fetch(f"before-{name}")
            began = time.time()
            service = self._stack.services[name]
            await asyncio.to_thread(service.kill)
            self.strikes.append(f"{name} away at {began:.1f}")
            work: list[asyncio.Task[None]] = []
            while time.time() < began + absent:
                work.append(asyncio.create_task(self.clients.fetch(f"without-{name}-{len(work)}")))
                await asyncio.sleep(absent / 5)
            await asyncio.to_thread(service.start)
            self.clients.seen.away.append(Absence(name, began, time.time()))
            await self._all_end(work)

    async def _work_until(self, ends: float, kinds: Collection[Round]) -> None:
        work: list[asyncio.Task[None]] = []
        while time.monotonic() < ends:
            if "cancels" in kinds:
                work.append(asyncio.create_task(self.clients.hold(f"held-{len(work)}")))
            if "messages" in kinds:
                work.append(asyncio.create_task(self.clients.listen(f"heard-{len(work)}")))
            await asyncio.sleep(_PACE_SECONDS)
        await self._all_end(work)

    async def _all_end(self, work: list[asyncio.Task[None]]) -> None:
        if not work:
            return
        done, stuck = await asyncio.wait(work, timeout=patience(120))
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        seen = self.clients.seen
        self.troubles += [f"run {key} ({run}) has not ended" for key, run in seen.runs.items() if run not in seen.ends]
        for task in done:
            error = task.exception()
            if error is not None and not isinstance(error, AssertionError):
                raise error

    async def _kill_until(self, ends: float) -> None:
        hit: dict[str, asyncio.Task[None]] = {}
        while time.monotonic() < ends:
            await asyncio.sleep(self._chance.uniform(0.4, 1.6))
            free = [name for name in (*_VICTIMS, "nats") if name not in hit or hit[name].done()]
            if not free:
                continue
            victim = self._chance.choice(free)
            alike = [one for one in free if one.partition("-")[0] == victim.partition("-")[0]]
            for name in alike if self._chance.random() < _ALL_AT_ONCE else [victim]:
                hit[name] = asyncio.create_task(self._kill(name))
        await asyncio.gather(*hit.values())

    async def _kill_at_ticks(self, first: float, ends: float) -> None:
        """One gateway in turn, sometimes both, between shortly before a tick and when its run has been started."""
        number = 0
        while time.monotonic() < ends:
            number += 1
            moment = first + number * EVERY_SECONDS + self._chance.uniform(-0.1, 0.5)
            await asyncio.sleep(max(0.0, moment - time.time()))
            victims = GATEWAYS if self._chance.random() < 0.2 else (GATEWAYS[number % 2],)
            await asyncio.gather(*map(self._kill, victims))

    async def _kill(self, name: str) -> None:
        self.strikes.append(f"SIGKILL {name} at {time.time():.2f}")
        if name == "nats":
            await asyncio.to_thread(self._stack.nats.kill)
            await asyncio.to_thread(self._stack.nats.start)
            return
        victim = self._stack.services[name]
        victim.signal(signal.SIGKILL)
        await asyncio.to_thread(victim.process.wait if victim.process is not None else lambda: None)
        await asyncio.sleep(self._chance.uniform(0.0, 0.6))
        await asyncio.to_thread(victim.start)

    @contextlib.asynccontextmanager
    async def _stopped(self, postgres: PostgresServer) -> AsyncIterator[None]:
        await asyncio.to_thread(postgres.crash)
        yield
        await asyncio.to_thread(postgres.start)

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        with contextlib.ExitStack() as held:
            for name in GATEWAYS:
                file = self._stack.folder / f"{name}.db"
                connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
                held.enter_context(contextlib.closing(connection))
                await asyncio.to_thread(connection.execute, "BEGIN EXCLUSIVE")
            yield
