"""A page of the documentation, played word for word: its files are written, its commands run, its output compared.

A fenced block with `title="FILE"` is a file. A block `console` has commands behind `$ `, each with its output
below it; `…` stands for any text, and a line of `…` alone for any lines. A block `console` with
`title="Terminal …"` has one command that keeps running: what was running in that terminal is interrupted first,
and the command has started when the output shown is printed. Blocks of other kinds are not played. `cadre up`
takes free ports here.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.nats_server import free_port
from harness.patience import eventually, patience

FENCE = re.compile(r"^```(?P<kind>\w+)?(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
ANY = "…"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    kind: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(one["kind"] or "", one["title"] or "", one["text"]) for one in FENCE.finditer(page.read_text())]


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines of output shown below it."""
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


def shows(printed: str, shown: list[str]) -> bool:
    """Return if the lines shown stand in the output, in order."""
    lines = [r"(?:.*\n)*?" if line == ANY else ".*".join(map(re.escape, line.split(ANY))) + r"\n" for line in shown]
    pattern = "".join(re.sub(r"(\\ )+", r"\\s+", line) for line in lines)
    return re.search(f"^{pattern}", printed if printed.endswith("\n") else printed + "\n", re.M) is not None


_READS = re.compile(r"cadre (memory list|runs|show|approvals list)\b")
"""Commands that may be repeated: what they show may follow a moment after what caused it."""


class PlayedPage:
    """A folder in which a page is played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        known = {name: value for name, value in os.environ.items() if not name.startswith(("CADRE_", "OTEL_"))}
        self._environment = {**known, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"}
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        self._model_port = str(free_port())

    def play(self, page: Path) -> int:
        """Play all blocks of a page and return how many commands it has."""
        played = 0
        for block in blocks_of(page):
            if block.kind == "console":
                for command, shown in commands_of(block.text):
                    played += 1
                    if block.title:
                        self._keep(block.title, command, shown)
                    else:
                        self._run(command, shown)
            elif block.title:
                file = self.folder / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
        return played

    def close(self) -> None:
        """Interrupt what still runs, and wait for its end."""
        for process in self._terminals.values():
            self._interrupt(process)
        self._terminals.clear()

    def _run(self, command: str, shown: list[str]) -> None:
        """Run a command; repeat one that only reads until it shows what follows from the commands before it."""
        output = ""

        def fits() -> bool:
            nonlocal output
            output = self._output(command)
            return shows(output, shown)

        if _READS.match(command):
            eventually(fits, what=f"$ {command} shows {shown}", state=lambda: output)
        else:
            assert fits(), f"$ {command}\n{output}\nis not\n" + "\n".join(shown)

    def _output(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(),
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    def _keep(self, terminal: str, command: str, shown: list[str]) -> None:
        if before := self._terminals.pop(terminal, None):
            self._interrupt(before)
        log = self.folder / f"{terminal}.log"
        command = command.replace("8090", self._model_port)
        command = re.sub(r"\bcadre up\b", "cadre up --port 0", command)
        with log.open("wb") as output:
            self._terminals[terminal] = process = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        shown = [line.replace("127.0.0.1:8080", f"127.0.0.1:{ANY}") for line in shown]

        def started() -> bool:
            assert process.poll() is None, f"$ {command}\n{log.read_text()}"
            return shows(log.read_text(), shown)

        eventually(started, what=f"{command!r} prints what the page shows")
        if gateway := re.search(r"^gateway +(http://\S+)", log.read_text(), re.M):
            self._environment["CADRE_GATEWAY_URL"] = gateway[1]

    @staticmethod
    def _interrupt(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)
        process.wait(patience())


@contextmanager
def played_page(folder: Path) -> Iterator[PlayedPage]:
    """Play pages in a folder; end what they started."""
    page = PlayedPage(folder)
    try:
        yield page
    finally:
        page.close()
