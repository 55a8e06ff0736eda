"""Effects in JetStream: a claim and a result per call, on one subject, each fenced; and the tallies of calls.

The result holds its claim, so one leader read of the subject's last message returns both.
"""

import contextlib

from msgspec.structs import replace
from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.errors import Fenced, RetryableError
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim, EffectResult
from cadre.protocol.policy import Tally
from cadre.protocol.topology import Topology

_Stage = EffectClaim | EffectResult


_DAYS_TALLY_TTL = "48h"


class NatsTallies:
    """ports.Tallies on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, name: str) -> tuple[Tally | None, int]:
        return await self._value(tree, name).read()

    async def write(self, tree: str, name: str, tally: Tally, fence: int) -> None:
        await self._value(tree, name).write(tally, fence)

    def _value(self, tree: str, name: str) -> FencedValue[Tally]:
        headers = {jetstream.ROLLUP: "sub"} | ({} if name == "tree" else {jetstream.TTL: _DAYS_TALLY_TTL})
        subject = self._topology.tally(tree, name)
        return FencedValue(self._nc, self._topology.stream_of(tree), subject, Tally, headers)


class NatsEffects:
    """ports.Effects on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, claim: EffectClaim) -> Effect | None:
        stage, fence = await self._stage(claim, self._subject(claim)).read()
        if stage is None:
            return None
        if isinstance(stage, EffectResult):
            return Effect(stage.claim, stage.claim_seq, stage.result)
        return Effect(stage, fence, None)

    async def claim(self, claim: EffectClaim) -> int:
        return await self._stage(claim, self._subject(claim)).write(claim, 0)

    async def settle(self, settled: EffectResult) -> None:
        await self._stage(settled.claim, self._subject(settled.claim)).write(settled, settled.claim_seq)

    async def revoke(self, settled: EffectResult) -> bool:
        """Settle the call unless it is claimed; a claim without a result is marked as revoked, so that an executor that
        finds it after its claimer's death does not run the call again. Return whether the call is settled in this way.
        Raise RetryableError."""
        claim = settled.claim
        stage = self._stage(claim, self._subject(claim))
        try:
            await stage.write(settled, 0)
        except Fenced:
            known, fence = await stage.read()
            if isinstance(known, EffectClaim) and not known.revoked:
                # Fenced again: it has its result by now, or was marked by another worker.
                with contextlib.suppress(Fenced):
                    await stage.write(replace(known, revoked=True), fence)
            return isinstance(known, EffectResult) and known.result == settled.result
        return True

    async def check_right(self, agent: str, tool: str) -> None:
        """Raise NotPermitted when this process may not store the effects of calls that this agent makes of this tool.
        Stores nothing."""
        # No sequence is this high: the server refuses, after it has looked whether the user may publish at all.
        subject = self._topology.effect("_store", "_right", agent, tool)
        try:
            await jetstream.append(self._nc, subject, b"", expect=1 << 62)
        except (Fenced, RetryableError):
            return

    def _subject(self, claim: EffectClaim) -> str:
        return self._topology.effect(claim.tree, claim.call, claim.agent, claim.tool)

    def _stage(self, claim: EffectClaim, subject: str) -> FencedValue[_Stage]:
        return FencedValue(self._nc, self._topology.stream_of(claim.tree), subject, _Stage)
