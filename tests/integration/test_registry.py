"""The registry across an outage of the server: nobody is taken for gone because nobody could be heard."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.adapters.nats import registry as nats_registry
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import encode
from cadre.protocol.cards import AgentCard, Presence
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience

GONE_AFTER = 2.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


def presence(name: str) -> Presence:
    card = AgentCard(name=name, description="Works.")
    return Presence(instance=name, host="here", pid=os.getpid(), started_at=1.0, agent=card)


def names(registry: NatsRegistry) -> set[str]:
    return {one.agent.name for one in registry.presences() if one.agent is not None}


async def forwarded(nc: NatsClient, subject: str, count: int) -> None:
    """Returns once so many messages were heard on the subject."""
    heard = asyncio.Semaphore(0)

    async def note(_: object) -> None:
        heard.release()

    subscription = await nc.subscribe(subject, cb=note)
    for _ in range(count):
        await asyncio.wait_for(heard.acquire(), patience())
    await subscription.unsubscribe()


async def test_a_replica_outlives_an_outage_longer_than_its_time(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_registry, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(nats_registry, "GONE_AFTER_SECONDS", GONE_AFTER)
    settings = Settings(nats_url=server.url, shards=1)
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    looker, silent = NatsRegistry(nc, topology), NatsRegistry(nc, topology)
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
    await looker.stop()
    await nc.close()


async def test_many_are_known_at_once(server: NatsServer) -> None:
    """More than one answer of the server may tell."""
    settings = Settings(nats_url=server.url, shards=1)
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    everybody = {f"agent-{number}" for number in range(1100)}

    async def put(name: str) -> None:
        key = topology.presence_key("agent", name, name)
        subject = f"$KV.{topology.registry_bucket}.{key}"
        await jetstream.append(nc, subject, encode(presence(name)), headers={jetstream.TTL: "300s"})

    await asyncio.gather(*map(put, everybody))
    looker = NatsRegistry(nc, topology)
    await asyncio.wait_for(looker.start(), patience())
    assert names(looker) == everybody
    await looker.stop()
    await nc.close()
