"""Effects in JetStream: a claim and a result per call, on one subject, each fenced.

The result holds its claim, so one leader read of the subject's last message tells all. What an earlier version claimed
or settled stands under another subject and counts as well; the result of such a claim is stored under the new one.
"""

from msgspec.structs import replace
from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.errors import Fenced, RetryableError
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim, EffectResult
from cadre.protocol.topology import Subject, Topology

_Stage = EffectClaim | EffectResult


class NatsEffects:
    """ports.Effects on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology
        self._has_former: dict[int, bool] = {}
        """By shard, whether it holds effects of an earlier version; no process adds to them any more."""

    async def read(self, claim: EffectClaim) -> Effect | None:
        stage, fence = await self._stage(claim, self._subject(claim)).read()
        if stage is None:
            return await self._former(claim) if await self._may_be_former(claim.tree) else None
        if isinstance(stage, EffectResult):
            return Effect(stage.claim, stage.claim_seq, stage.result)
        return Effect(stage, fence, None)

    async def claim(self, claim: EffectClaim) -> int:
        if await self._may_be_former(claim.tree):
            former = self._topology.subject(Subject.FORMER_EFFECT, tree=claim.tree, call=claim.call)
            if await self._is_any(self._topology.shard(claim.tree), former):
                raise Fenced(f"call {claim.call} was claimed by an earlier version")
        return await self._stage(claim, self._subject(claim)).write(claim, 0)

    async def settle(self, settled: EffectResult) -> None:
        await self._stage(settled.claim, self._subject(settled.claim)).write(settled, settled.claim_seq)

    async def check_right(self, agent: str, tool: str) -> None:
        """Raises NotPermitted when this process may not store the effects of calls that this agent makes of this tool.
        Stores nothing."""
        # No sequence is this high: the server refuses, after it has looked whether the user may publish at all.
        subject = self._topology.effect("_store", "_right", agent, tool)
        try:
            await jetstream.append(self._nc, subject, b"", expect=1 << 62)
        except (Fenced, RetryableError):
            return

    async def look_for_former(self) -> None:
        """Finds out which shards hold effects of an earlier version, so that no call has to. Raises BusUnavailable."""
        self._has_former = {
            shard: await self._is_any(shard, self._topology.subject(Subject.FORMER_EFFECT, shard=shard))
            for shard in range(self._topology.shards)
        }

    async def _former(self, claim: EffectClaim) -> Effect | None:
        """What an earlier version knows of the call. Its result, still to come, is the first message of the subject."""
        subject = self._topology.subject(Subject.FORMER_EFFECT, tree=claim.tree, call=claim.call)
        stage, _ = await self._stage(claim, subject).read()
        if stage is None:
            return None
        former, result = (stage.claim, stage.result) if isinstance(stage, EffectResult) else (stage, None)
        return Effect(replace(former, agent=claim.agent, tool=claim.tool), 0, result)

    async def _may_be_former(self, tree: str) -> bool:
        if not self._has_former:
            await self.look_for_former()
        return self._has_former[self._topology.shard(tree)]

    async def _is_any(self, shard: int, subject: str) -> bool:
        """Whether there is a message on the subject, as the stream's leader has it: a replica may lag."""
        stream = self._topology.stream(shard)
        query = {"subjects_filter": subject}
        answer = await jetstream.ask(self._nc, f"looking for {subject}", f"STREAM.INFO.{stream}", query)
        return bool(answer["state"].get("subjects"))

    def _subject(self, claim: EffectClaim) -> str:
        return self._topology.effect(claim.tree, claim.call, claim.agent, claim.tool)

    def _stage(self, claim: EffectClaim, subject: str) -> FencedValue[_Stage]:
        return FencedValue(self._nc, self._topology.stream_of(claim.tree), subject, _Stage)
