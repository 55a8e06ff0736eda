"""The tool service, except that it kills itself at one point: `CRASH_AT` is claim, settle or send."""

import os
import signal
import sys
from typing import Any

import cadre_tools.host
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.effects import NatsEffects
from cadre.protocol.messages import EffectClaim, EffectResult
from cadre_tools.main import command


def _die(here: str) -> None:
    if os.environ["CRASH_AT"] == here:
        os.kill(os.getpid(), signal.SIGKILL)


class DyingEffects(NatsEffects):
    async def claim(self, claim: EffectClaim) -> int:
        seq = await super().claim(claim)
        _die("claim")
        return seq

    async def settle(self, settled: EffectResult) -> None:
        await super().settle(settled)
        _die("settle")


class DyingBus(NatsBus):
    async def send(self, message: Any, sender: str, *, to: str | None = None) -> None:
        await super().send(message, sender, to=to)
        _die("send")


if __name__ == "__main__":
    import cadre.service.platform

    cadre_tools.host.NatsEffects = DyingEffects  # type: ignore[attr-defined]
    cadre.service.platform.NatsBus = DyingBus  # type: ignore[attr-defined]
    command(sys.argv[1:])
