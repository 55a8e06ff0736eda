"""Effects in JetStream: a claim and a result per call, on one subject, each fenced.

The result holds its claim, so one leader read of the subject's last message tells all.
"""

from __future__ import annotations

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim, EffectResult
from cadre.protocol.topology import Topology


class NatsEffects:
    """ports.Effects on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, call: str) -> Effect | None:
        stream = self._topology.stream_of(tree)
        held = await jetstream.last(self._nc, stream, self._topology.effect(tree, call))
        if held is None:
            return None
        record: EffectClaim | EffectResult = decode(held.data, EffectClaim | EffectResult)
        if isinstance(record, EffectResult):
            return Effect(record.claim, record.claim_seq, record.result)
        return Effect(record, held.seq, None)

    async def claim(self, claim: EffectClaim) -> int:
        subject = self._topology.effect(claim.tree, claim.call)
        return await jetstream.append(self._nc, subject, encode(claim), expect=0)

    async def settle(self, settled: EffectResult) -> None:
        subject = self._topology.effect(settled.tree, settled.claim.call)
        await jetstream.append(self._nc, subject, encode(settled), expect=settled.claim_seq)
