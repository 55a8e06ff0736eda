"""Cards of agents that may have no replica: whoever may send to them goes by these while nothing serves them.

They lie in the registry's bucket beside the keys of replicas, and do not expire: what makes an agent's queues before
its first start puts its card, and whoever takes the agent away takes the card away. With the card goes the agent's
specification, by which whoever asks for a run is told what the agent takes.
"""

import time

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.objects.blobs import NatsBlobs
from cadre.adapters.nats.registry import remove_key
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.engine.offer import card_of
from cadre.protocol.cards import AT_REST, Presence
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


def _key(topology: Topology, agent: str) -> str:
    return topology.presence_key("agent", agent, AT_REST)
