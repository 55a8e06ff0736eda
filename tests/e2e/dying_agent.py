"""The agent service, except that it dies twice of its first answer: before it has left it to the memory service, and
right after."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import cadre.service.platform
from cadre.adapters.nats.bus import NatsBus
from cadre.protocol.memory import REMEMBER
from cadre.protocol.messages import ToolCall
from cadre_agent.main import command

MARKS = Path(os.environ["DIED"])
"""A letter for each death, a dot for each answer that was left alive."""


def _mark(text: str) -> None:
    with MARKS.open("a") as marks:
        marks.write(text)


def _die_after(deaths: str) -> None:
    if (MARKS.read_text() if MARKS.exists() else "") == deaths:
        _mark("x")
        os.kill(os.getpid(), signal.SIGKILL)


class DyingBus(NatsBus):
    async def send(self, message: Any, sender: str, *, to: str | None = None) -> None:
        if not (isinstance(message, ToolCall) and message.tool == REMEMBER and message.id.endswith("_answer")):
            await super().send(message, sender, to=to)
            return
        _die_after("")
        await super().send(message, sender, to=to)
        _die_after("x")
        _mark(".")


if __name__ == "__main__":
    cadre.service.platform.NatsBus = DyingBus  # type: ignore[attr-defined]
    command(sys.argv[1:])
