"""The registry across an outage of the server: no one is taken for gone because no one could be heard."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from cadre.adapters.nats import registry as nats_registry
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.registry import NatsRegistry, keep_card, retire, take_card_away
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import encode
from cadre.errors import TooLarge
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cadre.spec.agent import AgentSpec
from harness.nats_server import NatsServer
from harness.patience import patience

GONE_AFTER = 2.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


class Bus(NamedTuple):
    """A connection to a server that has all streams; `looker` is a registry over it that no one has started."""

    nc: NatsClient
    topology: Topology
    settings: Settings
    looker: NatsRegistry


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    settings = Settings(nats_url=server.url, shards=1)
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    looker = NatsRegistry(nc, topology)
    yield Bus(nc, topology, settings, looker)
    await looker.stop()
    await nc.close()


def presence(name: str) -> Presence:
    card = AgentCard(name=name, description="Works.")
    return Presence(instance=name, host="here", pid=os.getpid(), started_at=1.0, shards=1, agent=card)


def names(registry: NatsRegistry) -> set[str]:
    return {one.agent.name for one in registry.presences() if one.agent is not None}


def reachable(registry: NatsRegistry) -> set[str]:
    return {one.agent.name for one in registry.reachable() if one.agent is not None}


async def seen(registry: NatsRegistry, condition: Callable[[], bool], what: str) -> None:
    """Returns once the condition holds, which anyone who comes or goes may bring about."""
    try:
        async with asyncio.timeout(patience()):
            while not condition():
                await registry.changed()
    except TimeoutError:
        raise AssertionError(f"not seen: {what}; {names(registry)}") from None


class Line:
    """A way to the server that can be cut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._port = 0
        self._ends: list[asyncio.StreamWriter] = []

    async def mend(self) -> int:
        """Returns the port that leads to the server."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def cut(self) -> None:
        self._server.close()
        for end in self._ends:
            end.close()
        self._ends.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends += [writer, back]
        await asyncio.gather(_pass(reader, back), _pass(there, writer), return_exceptions=True)


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(4096):
            target.write(data)
            await target.drain()


async def forwarded(nc: NatsClient, subject: str, count: int) -> None:
    """Returns once so many messages were heard on the subject."""
    heard = asyncio.Semaphore(0)

    async def note(_: object) -> None:
        heard.release()

    subscription = await nc.subscribe(subject, cb=note)
    for _ in range(count):
        await asyncio.wait_for(heard.acquire(), patience())
    await subscription.unsubscribe()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_registry, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(nats_registry, "GONE_AFTER_SECONDS", GONE_AFTER)


@pytest.mark.usefixtures("hurried")
async def test_a_replica_outlives_an_outage_longer_than_its_time(server: NatsServer, bus: Bus) -> None:
    nc, topology, _, looker = bus
    silent = NatsRegistry(nc, topology)
    await looker.start()
    await looker.announce([presence("looker")])
    await silent.announce([presence("silent")])
    own = f"$KV.{topology.registry_bucket}.{topology.presence_key('agent', 'looker', 'looker')}"
    await forwarded(nc, own, 1)
    assert names(looker) == {"looker", "silent"}
    server.kill()
    await asyncio.sleep(GONE_AFTER + 0.5)  # the outage itself
    server.start()
    await forwarded(nc, own, 3)
    assert names(looker) == {"looker", "silent"}
    changed = looker.changed()
    await asyncio.wait_for(changed, 10 * GONE_AFTER)
    assert names(looker) == {"looker"}, "who stays silent is gone in the end"


@pytest.mark.usefixtures("hurried")
async def test_who_offers_nothing_sees_that_nobody_can_be_heard(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway keeps no key alive, so no put reports it that the bucket takes none, as without a leader."""
    monkeypatch.setattr(jetstream, "ANSWER_SECONDS", 0.5)
    nc, topology, settings, looker = bus
    silent = NatsRegistry(nc, topology)
    await looker.start()
    await silent.announce([presence("silent")])
    await seen(looker, lambda: names(looker) == {"silent"}, "it is heard")
    deleted = await jetstream.api(nc, f"STREAM.DELETE.KV_{topology.registry_bucket}")
    assert deleted["success"]
    await asyncio.sleep(3 * GONE_AFTER)  # the outage itself
    assert any((one.name, one.levelname) == ("cadre.registry", "WARNING") for one in caplog.records)
    assert names(looker) == {"silent"}
    await provision(nc, settings)
    await seen(looker, lambda: not names(looker), "who stays silent is gone in the end")


@pytest.mark.usefixtures("hurried")
async def test_who_stood_still_has_heard_nobody(bus: Bus) -> None:
    nc, topology, _, looker = bus
    silent = NatsRegistry(nc, topology)
    await looker.start()
    await looker.announce([presence("looker")])
    await silent.announce([presence("silent")])
    own = f"$KV.{topology.registry_bucket}.{topology.presence_key('agent', 'looker', 'looker')}"
    await forwarded(nc, own, 1)
    time.sleep(GONE_AFTER + 0.5)  # noqa: ASYNC251 - the process stands still, as under SIGSTOP
    await forwarded(nc, own, 2)
    assert names(looker) == {"looker", "silent"}


async def test_one_that_cannot_be_stored_does_not_silence_the_others(bus: Bus) -> None:
    nc, topology, _, looker = bus
    huge = presence("huge")
    assert huge.agent is not None
    card = replace(huge.agent, description="x" * (nc.max_payload + 1))
    await looker.start()
    with pytest.raises(TooLarge):
        await NatsRegistry(nc, topology).announce([replace(huge, agent=card), presence("small")])
    await seen(looker, lambda: names(looker) == {"small"}, "the small one is heard")


@pytest.mark.usefixtures("hurried")
async def test_a_card_at_rest_stays_until_it_is_taken_away_which_nobody_misses(server: NatsServer, bus: Bus) -> None:
    nc, topology, settings, _ = bus
    line = Line(server.port)
    other = await connect(replace(settings, nats_url=f"nats://127.0.0.1:{await line.mend()}"), "other")
    for name in ("resting", "passing"):
        await keep_card(nc, topology, AgentSpec(name=name, description="Rests."))
    looker = NatsRegistry(other, topology)
    await looker.start()
    assert not looker.presences()
    assert reachable(looker) == {"resting", "passing"}
    awake = NatsRegistry(nc, topology)
    live = presence("resting")
    await awake.announce([live])
    await seen(looker, lambda: names(looker) == {"resting"}, "its replica")
    assert live in looker.reachable(), "a replica counts in place of the card"
    await awake.withdraw()
    await seen(looker, lambda: reachable(looker) == {"resting", "passing"}, "its card")

    await line.cut()
    assert await take_card_away(nc, topology, "passing")
    assert not await take_card_away(nc, topology, "passing")
    await line.mend()
    await seen(looker, lambda: reachable(looker) == {"resting"}, "it was missed")
    await looker.stop()
    await other.close()
    await line.cut()


def absent(registry: NatsRegistry, name: str) -> float | None:
    """Since when the agent is away; None while it is not."""
    return registry.absences()[ServiceKey("agent", name)]


@pytest.mark.usefixtures("hurried")
async def test_what_falls_silent_stays_known_as_away_also_to_those_who_come_later(bus: Bus) -> None:
    nc, topology, _, looker = bus
    silent = NatsRegistry(nc, topology)
    await looker.start()
    before = time.time()
    await silent.announce([presence("silent")])
    await seen(looker, lambda: names(looker) == {"silent"}, "it is heard")
    assert absent(looker, "silent") is None
    heard = time.time()
    await seen(looker, lambda: not names(looker), "it is silent")
    (kept,) = looker.reachable()
    assert (kept.agent, kept.is_live) == (presence("silent").agent, False)
    since = absent(looker, "silent")
    assert since == kept.away_since
    assert since is not None
    assert before - 1 <= since <= heard + 1
    later = NatsRegistry(nc, topology)
    await later.start()
    assert (names(later), reachable(later)) == (set(), {"silent"})
    told = absent(later, "silent")
    assert told is not None
    assert abs(told - since) < 1, "the stored key says when it was put"
    await later.stop()


async def test_what_leaves_in_good_order_is_away_at_once_and_back_with_its_successor(bus: Bus) -> None:
    nc, topology, _, looker = bus
    await looker.start()
    former = NatsRegistry(nc, topology)
    await former.announce([presence("clerk")])
    await seen(looker, lambda: names(looker) == {"clerk"}, "it is heard")
    await former.withdraw()
    await seen(looker, lambda: not names(looker), "it has left")
    assert reachable(looker) == {"clerk"}
    successor = replace(presence("clerk"), instance="second", started_at=2.0)
    await NatsRegistry(nc, topology).announce([successor])
    await seen(looker, lambda: names(looker) == {"clerk"}, "its successor")
    assert looker.reachable() == [successor], "what is away does not count beside it"
    assert absent(looker, "clerk") is None


async def test_what_a_live_process_does_not_offer_any_more_is_unknown(bus: Bus) -> None:
    nc, topology, _, looker = bus
    await looker.start()
    host = NatsRegistry(nc, topology)
    await host.announce([presence("stays"), presence("goes")], part="tools")
    await seen(looker, lambda: names(looker) == {"stays", "goes"}, "both")
    await host.announce([presence("stays")], part="tools")
    await seen(looker, lambda: reachable(looker) == {"stays"}, "one was taken away")


async def test_what_is_retired_is_unknown_once_it_is_gone_and_known_when_it_starts_again(bus: Bus) -> None:
    nc, topology, _, looker = bus
    await looker.start()
    live, gone = NatsRegistry(nc, topology), NatsRegistry(nc, topology)
    await live.announce([presence("live")])
    await gone.announce([presence("gone")])
    await gone.withdraw()
    await seen(looker, lambda: (names(looker), reachable(looker)) == ({"live"}, {"live", "gone"}), "both")
    for name in ("live", "gone"):
        await retire(nc, topology, ServiceKey("agent", name), now=10.0)
    await seen(looker, lambda: reachable(looker) == {"live"}, "what was away is unknown")
    await live.withdraw()
    await seen(looker, lambda: not reachable(looker), "so is the other once it is gone")
    later = NatsRegistry(nc, topology)
    await later.start()
    assert not later.reachable()
    await later.stop()
    again = NatsRegistry(nc, topology)
    await again.announce([replace(presence("gone"), started_at=11.0)])
    await seen(looker, lambda: names(looker) == {"gone"}, "it was started again")
    await again.withdraw()
    await seen(looker, lambda: not names(looker), "it has left")
    assert reachable(looker) == {"gone"}


@pytest.mark.usefixtures("hurried")
async def test_the_keys_of_the_dead_go_when_a_live_replica_stands_in(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_registry, "_SWEEP_SECONDS", 0.5)
    nc, topology, _, looker = bus
    await looker.start()
    for number in range(3):
        former = NatsRegistry(nc, topology)
        await former.announce([replace(presence("clerk"), instance=f"former-{number}")])
        await former.withdraw()
    await seen(looker, lambda: len(looker.reachable()) == 3, "all are away")
    live = NatsRegistry(nc, topology)
    await live.start()
    await live.announce([presence("clerk")])
    await seen(looker, lambda: names(looker) == {"clerk"}, "one lives")

    async def keys() -> list[str]:
        bucket, query = f"KV_{topology.registry_bucket}", {"seq": 1, "batch": 99, "next_by_subj": ">"}
        return [one.subject for one in await jetstream.batch(nc, bucket, query) if one.data]

    while len(await keys()) > 1:
        await forwarded(nc, f"$KV.{topology.registry_bucket}.>", 1)
    await live.stop()


@pytest.mark.usefixtures("hurried")
async def test_what_is_away_is_forgotten_when_its_days_are_over(bus: Bus) -> None:
    nc, topology, _, _ = bus
    passing, looker = NatsRegistry(nc, topology, away_days=0), NatsRegistry(nc, topology, away_days=0)
    await looker.start()
    await passing.announce([presence("passing")])
    await passing.withdraw()
    await seen(looker, lambda: not names(looker) and reachable(looker) == {"passing"}, "it is away")
    await seen(looker, lambda: not reachable(looker), "it is forgotten")
    await looker.stop()


async def test_many_are_known_at_once(bus: Bus) -> None:
    """More than one answer of the server may tell."""
    nc, topology, _, looker = bus
    everybody = {f"agent-{number}" for number in range(1100)}

    async def put(name: str) -> None:
        key = topology.presence_key("agent", name, name)
        subject = f"$KV.{topology.registry_bucket}.{key}"
        await jetstream.append(nc, subject, encode(presence(name)), headers={jetstream.TTL: "300s"})

    await asyncio.gather(*map(put, everybody))
    await asyncio.wait_for(looker.start(), patience())
    assert names(looker) == everybody
