"""Keys of the registry that no replica puts: cards of agents at rest, and what takes a service out of a deployment.

A card at rest does not expire: what makes an agent's queues before its first start puts it, and removing the agent
removes it. With the card goes the agent's specification, by which doors say what the agent takes.
"""

import time

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.registry import AWAY_DAYS, remove_key, seconds_of
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.engine.toolset import card_of
from cadre.protocol.cards import AT_REST, RETIRED, Presence
from cadre.protocol.topology import Topology
from cadre.spec.agent import AgentSpec


async def keep_card(nc: Client, topology: Topology, agent: AgentSpec) -> None:
    """Puts the card in place of a former one. Raises as `jetstream.append`."""
    # A new blob that nothing names stays for an hour.
    ref = await NatsBlobs(nc, topology).put(msgspec.json.encode(agent))
    kept = Presence(
        instance=AT_REST,
        host="",
        pid=0,
        started_at=time.time(),
        spec=ref,
        agent=card_of(agent),
    )
    subject = f"$KV.{topology.registry_bucket}.{_key(topology, agent.name)}"
    await jetstream.append(nc, subject, encode(kept))


async def take_card_away(nc: Client, topology: Topology, agent: str) -> bool:
    """Returns whether there was one. Raises as `jetstream.append`."""
    bucket, key = topology.registry_bucket, _key(topology, agent)
    found = await jetstream.last(nc, f"KV_{bucket}", f"$KV.{bucket}.{key}")
    if found is None or not found.data:
        return False
    await remove_key(nc, bucket, key)
    return True


async def retire(
    nc: Client, topology: Topology, service: ServiceKey, now: float, days: float = AWAY_DAYS
) -> None:
    """Takes a service out of the deployment: its card at rest goes, and it is unknown once the replicas that started
    until now (Unix seconds) are gone. The marker stays for `days`, as long as their keys do. Raises as
    `jetstream.append`."""
    if service.kind == "agent":
        await take_card_away(nc, topology, service.name)
    marker = Presence(instance=RETIRED, host="", pid=0, started_at=now)
    key = topology.presence_key(service.kind, service.name, RETIRED)
    subject = f"$KV.{topology.registry_bucket}.{key}"
    await jetstream.append(nc, subject, encode(marker), headers={jetstream.TTL: f"{seconds_of(days):.0f}s"})


def _key(topology: Topology, agent: str) -> str:
    return topology.presence_key("agent", agent, AT_REST)
