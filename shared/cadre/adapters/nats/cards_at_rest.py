"""Cards of agents that may have no replica: whoever may send to them goes by these while nothing serves them.

They lie in the registry's bucket beside the keys of replicas, and do not expire: what makes an agent's queues before
its first start puts its card, and whoever takes the agent away takes the card away.
"""

import time

from nats.aio.client import Client

from cadre.adapters.nats.registry import remove_key
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.protocol.cards import AT_REST, SUBJECTS, AgentCard, Presence
from cadre.protocol.topology import Topology


async def keep_card(nc: Client, topology: Topology, card: AgentCard) -> None:
    """Puts the card in place of a former one. Raises as `jetstream.append`."""
    kept = Presence(instance=AT_REST, host="", pid=0, started_at=time.time(), subjects=SUBJECTS, agent=card)
    subject = f"$KV.{topology.registry_bucket}.{_key(topology, card.name)}"
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
