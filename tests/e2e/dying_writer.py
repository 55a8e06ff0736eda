"""The tool service, except that it kills itself once: when a file has been written and no one knows yet."""

import os
import signal
import sys
from pathlib import Path

import cadre_tools.host
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.protocol.files import WorkspaceFile
from cadre_tools.main import command


def _die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class DyingIndex(NatsFileIndex):
    async def write(self, record: WorkspaceFile, fence: int) -> int:
        written = await super().write(record, fence)
        _die_once(Path(os.environ["DIED"]))
        return written


if __name__ == "__main__":
    cadre_tools.host.NatsFileIndex = DyingIndex  # type: ignore[attr-defined]
    command(sys.argv[1:])
