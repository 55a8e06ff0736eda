"""Effects in JetStream: a claim and a result per call, on one subject, each fenced.

The result holds its claim, so one leader read of the subject's last message tells all.
"""

from nats.aio.client import Client

from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim, EffectResult
from cadre.protocol.topology import Topology

_Stage = EffectClaim | EffectResult


class NatsEffects:
    """ports.Effects on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, call: str) -> Effect | None:
        stage, fence = await self._stage(tree, call).read()
        if stage is None:
            return None
        if isinstance(stage, EffectResult):
            return Effect(stage.claim, stage.claim_seq, stage.result)
        return Effect(stage, fence, None)

    async def claim(self, claim: EffectClaim) -> int:
        return await self._stage(claim.tree, claim.call).write(claim, 0)

    async def settle(self, settled: EffectResult) -> None:
        await self._stage(settled.tree, settled.claim.call).write(settled, settled.claim_seq)

    def _stage(self, tree: str, call: str) -> FencedValue[_Stage]:
        topology = self._topology
        return FencedValue(self._nc, topology.stream_of(tree), topology.effect(tree, call), _Stage)
