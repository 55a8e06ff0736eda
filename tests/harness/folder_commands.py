"""`cadre up` and other commands in one folder, as a user starts them, and what they leave there."""

import json
import os
import signal
import subprocess
from pathlib import Path

from harness import forks
from harness.command import CADRE, MODULE
from harness.guard import Guard
from harness.patience import eventually, patience


class FolderCommands:
    """`cadre …` in one folder, with nothing of the environment that says where anything is."""

    def __init__(self, folder: Path, guard: Guard) -> None:
        self.folder = folder
        self._guard = guard
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
        self.environment |= {"CADRE_SHARDS": "1", "CADRE_DRAIN_SECONDS": "2", "PYTHONUNBUFFERED": "1"}

    def start(self, *words: str, piped: bool = False) -> subprocess.Popen[bytes]:
        """Starts it; its output is a pipe, or a file named after the verb."""
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [*CADRE, *words],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE if piped else log,
                stderr=subprocess.STDOUT,
                process_group=self._guard.group,
            )
        self._guard.adopt(process)
        return process

    def up(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts `cadre up` and waits until all of it is ready."""
        process = self.start("up", "--port", "0", *words)
        eventually(lambda: self.state() is not None, what="cadre up is ready", state=lambda: self.log("up"))
        return process

    def state(self) -> dict[str, object] | None:
        """The content of up.json, or None."""
        try:
            return dict(json.loads((self.folder / ".cadre/up.json").read_bytes()))
        except FileNotFoundError:
            return None

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return forks.run([MODULE, *words], self.environment, self.folder, "", patience())

    def log(self, verb: str) -> str:
        """Return what the command has written to its file."""
        return (self.folder / f"{verb}.log").read_text()


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(patience())
