"""A deployment around programs: their model and their tools in reach of the test, which kills their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.patience import eventually
from harness.program_model import ProgramModel
from harness.stack import Gateway, Service, Stack

FILE = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  description: Books trips.
  kind: program
  program: {{main: {main}, python: "{python}"{more}}}
  tools: [book]
{spec}
"""


class ProgramStack:
    """Agents that are programs, the tool `book`, and a gateway.

    Attributes:
        folder: where programs and tools leave their notes.
    """

    def __init__(self, stack: Stack, model: ProgramModel, folder: Path) -> None:
        self.stack = stack
        self.model = model
        self.folder = folder
        stack.environment |= {
            "CADRE_MODEL_URL": f"{model.url}/v1",
            "CADRE_MODEL": "theirs",
            "CADRE_MODEL_KEY": "key-of-the-endpoint",
            "PROGRAM_FOLDER": str(folder),
            "PROGRAM_CONTROL": model.url,
        }
        self.gateway: Gateway
        self.agents = 0

    def add(
        self, name: str, main: str, *, python: str = "", more: str = "", spec: str = "", apart: bool = False
    ) -> None:
        """Add an agent whose program is a function, as `path/of/file.py:name`; `apart`: what runs it is a process apart
        from the agent, `NAME-host`."""
        file = self.folder / f"{name}.yaml"
        file.write_text(FILE.format(name=name, main=main, python=python, more=more, spec=spec))
        self.agents += 1
        if not apart:
            self.stack.add(name, "cadre.cli.main", "member", file, start=False)
            return
        self.stack.agent(file, start=False)
        self.stack.tools(file, name=f"{name}-host", start=False)

    def start(self, tools: Path) -> None:
        """Start all that was added, and wait for it."""
        self.stack.tools(tools, name="booking", start=False)
        self.gateway = self.stack.open_gateway(self.agents)

    def host(self, name: str) -> Service:
        """The service that runs the agent's program."""
        services = self.stack.services
        return services.get(f"{name}-host") or services[name]

    # --- one run

    def begin(self) -> None:
        """Forget what earlier runs have left."""
        for name in ("effects", "lookups", "deltas", "pids", "urls", "alive"):
            (self.folder / name).unlink(missing_ok=True)
        self.model.asked.clear()
        self.model.at = lambda label: None
        self.model.between = lambda place: None

    def lines(self, name: str) -> list[str]:
        """The lines of a note."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def kill_program(self) -> None:
        """Kill the process that works for the run, if it has said which that is."""
        for pid in self.lines("pids")[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def kill_forks(self, name: str) -> None:
        """Kill all processes that were forked for runs of the agent."""
        for zygote in _children(self.host(name).pid):
            for pid in _children(zygote):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_host(self, name: str) -> None:
        """Kill what runs the agent's program, and start it again."""
        self.host(name).kill()
        self.host(name).start(wait=False)

    def points(self, agent: str, task: str = "Book four.") -> tuple[list[str], Any]:
        """The points of a run that is left alone, and its answer."""
        self.begin()
        seen: list[str] = []
        self.model.at = seen.append
        return seen, self.gateway.answer(agent, task)

    def answers(self, run: str) -> int:
        """Return how many answers of a model the run's journal has."""
        return sum(name == "model.answered" for name, _ in self.gateway.events(run))


@contextlib.contextmanager
def program_stack(folder: Path) -> Iterator[ProgramStack]:
    """A deployment without agents yet."""
    notes = folder / "notes"
    notes.mkdir()
    with ProgramModel() as model, Stack(folder) as stack:
        yield ProgramStack(stack, model, notes)


def _children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found]


class Chain:
    """Kills once at each point of a run that it comes by, in the order in which they come.

    Args:
        kill: what is killed.
    """

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self.killed: list[str] = []
        self._one = threading.Lock()

    def __call__(self, label: str) -> None:
        with self._one:
            if label not in self.killed:
                self._kill()
                self.killed.append(label)


def await_program(stack: ProgramStack) -> None:
    """Wait until some process works for the run."""
    eventually(lambda: bool(stack.lines("pids")), what="the program runs", state=stack.stack.logs)
