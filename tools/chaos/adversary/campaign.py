"""One attack from start to verdict: a hostile model, cut connections, people who disagree, processes that die."""

import asyncio
import json
import random
import shutil
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from chaos.adversary.audit import Seen, audit, read_shards
from chaos.adversary.cutting_proxy import CuttingProxy
from chaos.adversary.people import People
from harness.patience import patience
from harness.stack import Stack

TEAM = Path(__file__).parent / "team"
TOOLS = Path(__file__).parents[1] / "team" / "tools.py"

USERS = ("ann", "bob")
BUDGET_TOKENS = 500
_PACE_SECONDS = 0.5
_GAP_SECONDS = 1.0
_PAUSE_SECONDS = (4.5, 6.0)
_PAUSED_SHARE = 0.4
_VICTIMS = (
    "teller-1",
    "teller-2",
    "keeper-1",
    "keeper-2",
    "tools-1",
    "tools-2",
    "gateway-1",
    "gateway-2",
    "memory",
)


class Attack(NamedTuple):
    """The outcome."""

    seen: Seen
    violations: list[str]
    strikes: int
    cuts: int
    entries: int
    folder: Path

    def summary(self) -> str:
        """Some lines for a person."""
        seen = self.seen
        told = sum(map(len, seen.streams.values()))
        lines = [
            f"  adversary {len(seen.runs):4}   runs; {self.strikes} strikes, {self.cuts} connections cut;"
            f" {len(seen.rulings)} opposite words on held calls; {len(seen.budgets)} budgets;"
            f" {sum(map(len, seen.memories.values()))} memories; {told} events told of {self.entries} messages"
        ]
        lines += [f"  - {line[:400]}" for line in self.violations[:25]]
        verdict = f"{len(self.violations)} VIOLATIONS" if self.violations else "The audit found nothing"
        return "\n".join([*lines, f"{verdict}. Logs: {self.folder}"])


async def attack(seed: int, seconds: float, folder: Path) -> Attack:
    """Runs it; the folder has logs and what was seen."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)  # noqa: ASYNC240 - nothing else runs yet
    chance = random.Random(seed)
    with Stack(folder) as stack:
        _add_all(stack, seed)
        stack.start_all()
        ports = [stack.services[name].port for name in ("gateway-1", "gateway-2")]
        async with CuttingProxy(ports, chance) as proxy:
            gateways = [f"http://127.0.0.1:{port}" for port in ports]
            people = People(proxy.url, gateways, Seen())
            strikes = await _war(stack, people, chance, seconds)
            proxy.calm = True
            await _ask_for_memories(people, gateways[0])
            cuts = proxy.cuts
        messages = await read_shards(stack.nats.url)
    found = audit(messages, people.seen)
    (folder / "seen.json").write_text(json.dumps(asdict(people.seen), indent=1))
    (folder / "violations.txt").write_text("".join(f"{line}\n" for line in found))
    return Attack(people.seen, found, strikes, cuts, sum(map(len, messages.values())), folder)


def _add_all(stack: Stack, seed: int) -> None:
    beside = str(Path(__file__).parents[2])
    model = stack.add("model", "chaos.adversary.hostile_model", start=False, PYTHONPATH=beside)
    model._arguments += [str(model.port), str(seed)]
    model.start()
    stack.environment |= {"CADRE_MODEL_URL": f"{model.url}/v1", "CADRE_MODEL": "hostile"}
    for agent in ("teller", "keeper"):
        for number in (1, 2):
            stack.agent(TEAM / f"{agent}.yaml", name=f"{agent}-{number}", start=False)
    for number in (1, 2):
        effects = str(stack.folder / "effects.txt")
        stack.add(f"tools-{number}", "cadre_tools", TOOLS, start=False, CHAOS_EFFECTS=effects)
        stack.add(f"gateway-{number}", "cadre_gateway", start=False)
    settings = {"CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
    stack.add("memory", "cadre_memory", start=False, **settings)


async def _war(stack: Stack, people: People, chance: random.Random, seconds: float) -> int:
    """Returns how many strikes there were, once every run has ended and everybody is ready again."""
    ends = time.monotonic() + seconds
    runs: list[asyncio.Task[Any]] = []
    striking = asyncio.create_task(_strike_until(stack, chance, ends))
    number = 0
    while time.monotonic() < ends:
        runs.append(asyncio.create_task(_one(people, number)))
        number += 1
        await asyncio.sleep(_PACE_SECONDS)
    strikes = await striking
    async with asyncio.timeout(patience(180)):
        await asyncio.gather(*runs)
    return strikes


async def _one(people: People, number: int) -> None:
    """Every kind of run in turn."""
    match number % 3:
        case 0:
            await people.run(f"held{number}", "teller", "held")
        case 1:
            run = await people.run(f"loop{number}", "teller", "loop", budget={"tokens": BUDGET_TOKENS})
            people.seen.budgets[run] = BUDGET_TOKENS
        case _:
            user = USERS[number % len(USERS)]
            await people.run(f"note{number}{user}", "keeper", "note", user=user)


async def _strike_until(stack: Stack, chance: random.Random, ends: float) -> int:
    """Returns how many strikes there were, once everybody who was hit is back."""
    strikes, hit = 0, dict[str, asyncio.Task[None]]()
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.5, 1.5) * _GAP_SECONDS)
        free = [name for name in _VICTIMS if name not in hit or hit[name].done()]
        victim = "nats" if strikes % 6 == 5 else chance.choice(free)
        hit[victim] = asyncio.create_task(_strike(stack, victim, chance))
        strikes += 1
    await asyncio.gather(*hit.values())
    return strikes


async def _strike(stack: Stack, name: str, chance: random.Random) -> None:
    if name == "nats":
        await asyncio.to_thread(stack.nats.kill)
        await asyncio.to_thread(stack.nats.start)
        return
    victim = stack.services[name]
    if chance.random() < _PAUSED_SHARE:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(*_PAUSE_SECONDS))
        victim.signal(signal.SIGCONT)
    else:
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        await asyncio.to_thread(victim.start)


async def _ask_for_memories(people: People, gateway: str) -> None:
    """A run of each user recalls all that is remembered for them, once that was stored."""
    for user in USERS:
        notes = [key for key in people.seen.runs if key.startswith("note") and key.endswith(user)]
        if not notes:
            continue
        async with httpx2.AsyncClient(base_url=gateway) as client, asyncio.timeout(patience(60)):
            while True:
                answer = await client.get("/v1/memory", params={"user": user, "limit": "50"})
                if answer.is_success and len(answer.json()["memories"]) >= len(notes):
                    break
                await asyncio.sleep(0.2)
        run = await people.run(f"ask{user}", "keeper", f"ask {' '.join(notes)}", user=user)
        people.seen.memories[run] = notes
