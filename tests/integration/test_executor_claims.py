"""A server that hangs while a call is claimed: the tool has not run, so no one says that it may have."""

import asyncio
import functools
from pathlib import Path

import pytest

from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.peers import NatsPeers
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.server_clock import SystemClock
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.fair_limiter import FairLimiter
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim
from cadre.runtime.executor import Executor, InHand
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience
from integration.executor_bench import Bench
from integration.executor_tools import mark


class Hanging(NatsEffects):
    """Its server stops as the first claim is written, until that is tried again."""

    def __init__(self, bench: Bench, server: NatsServer) -> None:
        super().__init__(bench.nc, bench.topology)
        self._server = server
        self.claims: list[EffectClaim] = []
        self.reads = 0

    async def claim(self, claim: EffectClaim) -> int:
        (self._server.go_on if self.claims else self._server.pause)()
        self.claims.append(claim)
        return await super().claim(claim)

    async def read(self, claim: EffectClaim) -> Effect | None:
        self.reads += 1
        return await super().read(claim)


async def test_a_call_whose_claim_got_no_answer_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = NatsServer(tmp_path)
    server.start()
    try:
        async with Bench.open(Settings(nats_url=server.url, shards=1), tmp_path) as bench:
            effects = Hanging(bench, server)
            in_hand = InHand("here", effects, NatsPeers(bench.nc, bench.topology))
            quarantine = NatsQuarantine(bench.nc, bench.topology)
            executor = Executor(effects, bench.bus, bench.blobs, in_hand, quarantine, SystemClock())
            queue = Queue(
                bench.nc,
                bench.topology.stream(0),
                bench.topology.tool_consumer("mark"),
                bench.topology.call_filter(0, "mark"),
                functools.partial(executor.handle, mark),
                limit=FairLimiter(1),
            )
            await queue.start()
            call = bench.new_call("mark", {"folder": str(bench.folder)})
            monkeypatch.setattr(jetstream, "ANSWER_SECONDS", 1.0)
            await bench.send(call)
            result = await asyncio.wait_for(bench.answer(call), patience())
            assert (result.error, bench.effects_of(call)) == (None, 1)
            assert effects.reads >= 1, "the first claim is there: read back"
            assert len(effects.claims) >= 2
            assert len(set(effects.claims)) == 1, "one claim, however often it was written"
            await queue.drain(1.0)
    finally:
        server.go_on()
        server.stop()
