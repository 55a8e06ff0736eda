"""The queues that an agent's calls may wait in while nothing serves them."""

from collections.abc import Iterator, Mapping

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.engine.offer import called_tools
from cadre.journal.arrivals import Offer
from cadre.ports import CallQueue
from cadre.protocol.rollout import Rollout
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import declaration_of


def absent_queues(spec: AgentSpec, offer: Offer, registry: NatsRegistry) -> dict[CallQueue, float]:
    """Returns since when (Unix seconds) nothing serves each of them; 0 where nothing ever has. What is at rest is
    not away: what waits for it starts it."""
    known = registry.absences()
    tools = {*called_tools(spec), *offer.tools, *(offer.with_files.tools if offer.with_files else ())}
    members = {*offer.members, *(member for member in spec.team if isinstance(member, str))}
    queues = [CallQueue("tool", tool) for tool in tools]
    queues += [CallQueue("sandbox", pool) for pool in declaration_of(spec.kind).needs(spec).pools]
    found = {
        queue: since
        for queue in queues
        if (since := known.get(ServiceKey(queue.kind, queue.name), 0.0)) is not None
    }
    for name in members:
        found |= _of_member(name, known, registry.rollout(name))
    return found


def _of_member(
    name: str, known: Mapping[ServiceKey, float | None], rollout: Rollout | None
) -> Iterator[tuple[CallQueue, float]]:
    """The member's own queue, and those of its revisions that none of its replicas takes from."""
    since = known.get(ServiceKey("agent", name), 0.0)
    if since is not None:
        yield CallQueue("agent", name), since
    if rollout is None:
        return
    for share in rollout.shares:
        taker = known.get(ServiceKey("agent", name, rollout.taker(share).revision), 0.0)
        if taker is not None:
            yield CallQueue("agent", name, share.slot), taker
