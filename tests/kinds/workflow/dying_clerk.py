"""Replicas of an agent, each its own process. The one that wrote the entry which `DEATHS/<tree>` names is killed
behind it, once, and another one takes its place. A tree waits for that file to be there."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import cadre.service.agent  # imported once, before the replicas part
import cadre.service.platform
from cadre.adapters.nats.journal import NatsJournal
from cadre.journal.entry import Entry
from cadre_agent.main import command

REPLICAS = 4
DEATHS = Path(os.environ["DEATHS"])


class DyingJournal(NatsJournal):
    async def append(self, entry: Entry, fence: int, **more: Any) -> Any:
        death = DEATHS / entry.tree
        while not death.exists():  # noqa: ASYNC110 - it is written by another process
            await asyncio.sleep(0.02)
        appended = await super().append(entry, fence, **more)
        point = f"{entry.run.removeprefix(entry.tree) or 'root'} {entry.n}"
        with (DEATHS / f"{entry.tree}.entries").open("a") as written:
            written.write(f"{point}\n")
        if point == death.read_text() and not (died := DEATHS / f"{entry.tree}.died").exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return appended


def replica() -> int:
    process = os.fork()
    if process == 0:
        os.environ["CADRE_PORT"] = "0"
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        cadre.service.platform.NatsJournal = DyingJournal  # type: ignore[attr-defined]
        command(sys.argv[1:])
    return process


def main() -> None:
    """Keeps the replicas up until it is asked to stop."""
    replicas = {replica() for _ in range(REPLICAS)}

    def stop(*_: object) -> None:
        for process in replicas:
            os.kill(process, signal.SIGKILL)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    while True:
        process, _ = os.wait()
        replicas.remove(process)
        replicas.add(replica())


if __name__ == "__main__":
    main()
