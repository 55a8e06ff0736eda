"""The run that a key stands for, in whichever generation of shards it began or will begin."""

from dataclasses import dataclass

from cadre.adapters.nats.streams.start_claims import NatsStartClaims
from cadre.errors import BusUnavailable
from cadre.protocol.addresses.generations import in_generation
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.idempotency import IdempotencyKey


@dataclass(frozen=True)
class KeyedRuns:
    """Finds the ids of runs that keys start. Every method raises RetryableError."""

    lookup: RunLookup
    claims: NatsStartClaims

    @property
    def newest(self) -> int:
        """Return the number of the generation, from 0, in which runs begin now."""
        return self.lookup.shards.topology.newest

    async def run_of(self, key: IdempotencyKey, agent: str) -> str:
        """Return the id of the agent's run that the key has started, or will start: the same from every gateway,
        whatever each knows of the shards at that moment."""
        first = key.run_of(agent)
        if not self.newest:
            return first  # published only while the start is not claimed for a later generation
        claimed = await self.claims.claim(first, self.newest)
        if claimed > self.newest:
            await self.lookup.shards.reload()
            if claimed > self.newest:
                raise BusUnavailable("looking for a run", "this gateway does not know its shards yet")
        # After the claim: a gateway that does not know of it can start nothing there any more.
        for generation in range(self.newest + 1):
            run = in_generation(first, generation)
            if generation != claimed and await self._has_begun(run):
                return run
        return in_generation(first, claimed)

    async def _has_begun(self, run: str) -> bool:
        history = self.lookup.history
        return (
            await history.task(run, run) is not None
            or await history.has_entries(run, run)
            or await self.lookup.is_erased(run)
        )
