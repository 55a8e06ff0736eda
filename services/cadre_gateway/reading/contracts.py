"""What live agents expect of what is live: their specifications, as they are stored, against cards and each other."""

import logging
from collections.abc import Iterable

import msgspec

from cadre.errors import BlobMissing, BusUnavailable, SpecError
from cadre.ports import Blobs
from cadre.protocol.cards import Presence, presence_order
from cadre.recent import Recent
from cadre.spec.agent import AgentSpec, decode_spec

log = logging.getLogger("cadre.gateway")

_MOST_SPECS = 256


class LiveContracts:
    """Holds the specifications of live agents against cards; each is read once."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known = Recent[str, AgentSpec](_MOST_SPECS)

    async def specs(self, presences: Iterable[Presence]) -> dict[str, AgentSpec]:
        """Return the specifications of live agents by name, as far as they can be read: of several replicas that of
        the one whose card counts."""
        live = sorted(presences, key=presence_order)
        refs = {presence.agent.name: presence.spec for presence in live if presence.agent is not None}
        read = {name: await self.spec(ref) for name, ref in refs.items() if ref}
        return {name: spec for name, spec in read.items() if spec is not None}

    async def of_agent(self, presences: Iterable[Presence], agent: str) -> AgentSpec | None:
        """The specification of a live agent; None where it cannot be read."""
        return (await self.specs(one for one in presences if one.agent and one.agent.name == agent)).get(
            agent
        )

    async def spec(self, ref: str) -> AgentSpec | None:
        """The specification; None where it is not there yet, or is another version's."""
        if ref not in self._known:
            try:
                self._known[ref] = decode_spec(await self._blobs.get(ref))
            except (BlobMissing, BusUnavailable, SpecError, msgspec.DecodeError) as error:
                log.debug("specification %s cannot be read: %s", ref, error)
                return None
        return self._known[ref]
