"""Shards grow from 4 to 8 while services are killed: nothing is lost, no start takes place twice, runs stay put.

Two gateways begin runs by keys that both of them get, and by a schedule; `cadre shards grow` is killed as well.
"""

import asyncio
import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.topology import generation_of
from harness.command import Commands, commands_of, only_line
from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Service, Stack

TEAM = Path(__file__).parent / "team"
KEYS = 12
"""Runs that keys start in each of three phases: before, during and after the growth."""
TICKS = 12


@pytest.fixture
def grown(tmp_path: Path) -> Any:
    with Stack(tmp_path) as stack:
        stack.environment["CADRE_SHARDS"] = "4"
        stack.model(TEAM / "script.yaml")
        for number in (1, 2):
            stack.agent(TEAM / "worker.yaml", name=f"worker-{number}", start=False)
            stack.tools(TEAM / "tools.py", name=f"tools-{number}", start=False)
        stack.agent(TEAM / "helper.yaml", start=False)
        stack.agent(TEAM / "boss.yaml", start=False)
        stack.add("gateway-2", "cadre_gateway", start=False, CADRE_INDEX_URL=f"sqlite://{tmp_path}/second.db")
        stack.open_gateway()
        for name in ("gateway", "gateway-2"):
            Gateway(stack.services[name]).wait_offered(3)
        yield stack


def begin(services: list[Service], key: str, task: str) -> str:
    """The id of the run that the key starts, by whichever of the services answers first."""
    found: list[str] = []

    def begun() -> bool:
        for service in services:
            try:
                answer = httpx2.post(
                    f"{service.url}/v1/runs",
                    json={"agent": "worker", "task": task},
                    headers={"Idempotency-Key": key},
                    timeout=patience(),
                )
            except httpx2.HTTPError:
                continue  # it was killed
            if answer.status_code in (200, 202):
                found.append(answer.json()["id"])
                return True
            assert answer.status_code in (503, 504), answer.text
        return False

    eventually(begun, what=f"a gateway begins the run of {key}")
    return found[0]


def begin_by_all(stack: Stack, keys: list[str], task: Callable[[str], str]) -> dict[str, set[str]]:
    """By each gateway at once, every key twice: the ids that were answered for each."""
    gateways = [stack.services["gateway"], stack.services["gateway-2"]]
    asked = [(key, order) for key in keys for order in (gateways, gateways[::-1])]
    with ThreadPoolExecutor(6) as callers:
        ids = callers.map(lambda one: (one[0], begin(one[1], one[0], task(one[0]))), asked)
        found: dict[str, set[str]] = {key: set() for key in keys}
        for key, run in ids:
            found[key].add(run)
    return found


def killed_in_turn(services: list[Service], over: threading.Event, chance: random.Random) -> None:
    for service in itertools.cycle(services):
        if over.wait(chance.uniform(0.3, 1.0)):
            return
        service.kill()
        service.start(wait=False)


def grown_under_kills(cadre: Commands, chance: random.Random) -> None:
    """`cadre shards grow 8`, killed five times at moments that come ever later, then to its end."""
    for number in range(5):
        growing = cadre.start("shards", "grow", 8)
        time.sleep(0.25 + 0.15 * number + chance.uniform(0, 0.1))  # the moment of a kill, not a wait
        growing.kill()
        growing.communicate()
    ended = cadre("shards", "grow", 8, "--wait", patience(60))
    assert ended.returncode == 0 or "8 shards already" in ended.stderr, ended.stderr


def begun_meanwhile(
    stack: Stack,
    work: Callable[[], None],
    before: dict[str, set[str]],
    task: Callable[[str], str],
    chance: random.Random,
) -> dict[str, set[str]]:
    """The runs that keys start while the work is done and one service after the other is killed. Keys that have
    started runs `before` find those."""
    names = ("worker-1", "tools-1", "gateway-2", "worker-2", "tools-2", "gateway")
    victims, over = [stack.services[name] for name in names], threading.Event()
    killing = threading.Thread(target=killed_in_turn, args=(victims, over, chance))
    working = ThreadPoolExecutor(1).submit(work)
    killing.start()
    during: dict[str, set[str]] = {}
    try:
        for number in itertools.count():
            during |= begin_by_all(stack, [f"during-{number}-{key}" for key in range(3)], task)
            again = begin_by_all(stack, [f"before-{number % KEYS}"], task)
            assert again.items() <= before.items()
            if working.done():
                break
        working.result()
    finally:
        over.set()
        killing.join()
    for service in victims:
        service.wait_ready()
    return during


def begun_in_new_shards(services: list[Service], task: Callable[[str], str]) -> dict[str, set[str]]:
    """The runs of keys that each of the services was sent, until it begins them in the new shards."""
    begun: dict[str, set[str]] = {}

    def knows(service: Service) -> bool:
        key = f"probe-{len(begun)}"
        run = begin([service], key, task(key))
        begun[key] = {run}
        return generation_of(run) == 1

    for service in services:
        eventually(partial(knows, service), what=f"{service.name} begins runs in the new shards")
    return begun


def journals(stack: Stack) -> dict[str, set[str]]:
    """By stream, the trees that have journals or tasks there."""

    async def read() -> dict[str, set[str]]:
        async with stack.platform() as platform:
            topology, found = platform.topology, {}
            assert topology.layout.generations == (4, 8)
            for shard in range(topology.shards):
                stream = topology.stream(shard)
                subjects = [
                    *await jetstream.subjects(platform.nc, stream, topology.journals_of_shard(shard)),
                    *await jetstream.subjects(platform.nc, stream, topology.inbox_filter(shard, "worker")),
                ]
                found[stream] = {topology.parse(subject)[0] for subject in subjects}
                assert {topology.stream_of(tree) for tree in found[stream]} <= {stream}
            return found

    return asyncio.run(read())


@pytest.mark.timeout(240)
def test_shards_grow_under_kills_with_schedules_and_keyed_starts(grown: Stack, tmp_path: Path) -> None:
    stack, chance = grown, random.Random(36)
    gateway, marks = Gateway(stack.services["gateway"]), tmp_path / "marks"
    cadre = commands_of(stack, tmp_path)

    def task(key: str) -> str:
        return f"use keyed {marks}-{key} 0.2"

    def keys(phase: str) -> list[str]:
        return [f"{phase}-{number}" for number in range(KEYS)]

    spec = {
        "agent": "worker",
        "task": f"use keyed {marks}-tick-{{{{ count }}}} 0.1",
        "every": "1s",
        "count": TICKS,
        "overlap": "allow",
        "missed": "all",
    }
    made = gateway.request("POST", "/v1/schedules", json={"name": "clock", **spec})
    assert made.status_code in (200, 201), made.text
    waits = gateway.submit("worker", "limited 20")
    before = begin_by_all(stack, keys("before"), task)
    during = begun_meanwhile(stack, partial(grown_under_kills, cadre, chance), before, task, chance)
    during |= begin_by_all(stack, keys("during"), task)
    probed = begun_in_new_shards([gateway.service, stack.services["gateway-2"]], task)
    after = begin_by_all(stack, keys("after"), task)
    assert begin_by_all(stack, keys("before"), task) == before
    assert begin_by_all(stack, list(during), task) == during
    by_key = before | during | probed | after
    assert {key: len(ids) for key, ids in by_key.items()} == dict.fromkeys(by_key, 1)
    runs = {key: next(iter(ids)) for key, ids in by_key.items()}
    assert {generation_of(runs[key]) for key in before} == {0}
    assert {generation_of(runs[key]) for key in after} == {1}
    for key, run in runs.items():
        assert gateway.finished(run)["state"] == "success", stack.logs()
        assert len(set(done(Path(f"{marks}-{key}")))) == 1, (key, run)
    assert gateway.finished(waits)["state"] == "success"
    ticked = _ticked(gateway)
    for number in range(1, TICKS + 1):
        assert len(set(done(Path(f"{marks}-tick-{number}")))) == 1, (number, ticked)
    streams = journals(stack)
    begun = Counter(tree for trees in streams.values() for tree in trees)
    assert set(begun.values()) == {1}
    assert begun.keys() == {*runs.values(), *ticked, waits}
    assert any(streams[stream] for stream in list(streams)[4:])
    _listed(stack, set(begun))


def _ticked(gateway: Gateway) -> list[str]:
    """Ids of the schedule's runs, once all of its ticks have come and their runs have ended."""
    found: dict[str, Any] = {}

    def all_came() -> bool:
        found.update(gateway.request("GET", "/v1/schedules/clock").json())
        return bool(found["ticks"] == TICKS)

    eventually(all_came, what="all ticks have come", state=lambda: found)
    runs = [str(one["run"]) for one in found["outcomes"]]
    assert len(set(runs)) == TICKS, found
    for run in runs:
        assert gateway.finished(run)["state"] == "success"
    return runs


def _listed(stack: Stack, runs: set[str]) -> None:
    """Both gateways list all of them, whichever shard each is in."""

    def left_out(gateway: Gateway) -> set[str]:
        page = gateway.request("GET", "/v1/runs", params={"limit": "1000"}).json()
        return runs - {one["id"] for one in page["runs"]}

    for name in ("gateway", "gateway-2"):
        gateway = Gateway(stack.services[name])
        eventually(partial(_is_empty, partial(left_out, gateway)), what=f"{name} lists all runs")


def _is_empty(look: Callable[[], set[str]]) -> bool:
    return not look()


def test_an_agent_that_stood_still_through_the_growth_takes_its_runs_up(tmp_path: Path) -> None:
    """It knows of no new generation when it goes on, and runs of that lie in streams that it has served all along."""
    with Stack(tmp_path) as stack:
        stack.model(TEAM / "script.yaml")
        agent = stack.agent(TEAM / "worker.yaml", start=False)
        tools = stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway(1)
        before = gateway.submit("worker", f"use effect {tmp_path}/before 0")
        for service in (agent, tools):
            service.signal(signal.SIGSTOP)
        cadre = commands_of(stack, tmp_path)
        grown = cadre("shards", "grow", 3)
        assert grown.returncode == 0, grown.stderr
        assert cadre("shards", "list").stdout.splitlines()[-1].endswith("new runs")
        for count in (3, 2):
            refused = only_line(cadre("shards", "grow", count), 2)
            assert "3 shards" in refused
        runs: list[str] = []

        def some_begin_there() -> bool:
            runs.append(gateway.submit("worker", f"use effect {tmp_path}/{len(runs)} 0"))
            return sum(map(generation_of, runs)) >= 9

        eventually(some_begin_there, what="runs begin in the new generation")
        for service in (agent, tools):
            service.signal(signal.SIGCONT)
        assert "effect is done" in gateway.succeeded(before)
        for number, run in enumerate(runs):
            assert "effect is done" in gateway.succeeded(run)
            assert len(done(tmp_path / str(number))) == 1
