"""The deployment under chaos: two replicas of each agent, of the tools and of the sandbox, a gateway, a model, NATS."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from chaos.tracers import TRACERS, add_tracers
from harness.forks import Process
from harness.otlp_receiver import OtlpReceiver
from harness.patience import patience
from harness.stack import Service, Stack

TEAM = Path(__file__).parent / "team"

PLAIN = ("boss", "lead", "worker", "coder", "clerk")
OTHERS = ("seeker", "queuer", "proposer", "planner")
"""Agents of the other kinds, to whom the odd runs go."""

AGENTS = (*PLAIN, *OTHERS)


def groups(others: int) -> dict[str, tuple[str, ...]]:
    """The names of the replicas of each service, with so many of each of OTHERS."""
    pairs = {name: (f"{name}-1", f"{name}-2") for name in (*AGENTS, "tools", "sandbox")}
    fewer = {name: pairs[name][:others] for name in OTHERS if others}
    plain = {name: pair for name, pair in pairs.items() if name not in OTHERS}
    single = {name: (name,) for name in ("gateway", "model", "nats")}
    return {**plain, **fewer, **single, "tracer": TRACERS}


GROUPS: Mapping[str, tuple[str, ...]] = groups(2)


class Crew:
    """All processes by name. Use it as a context manager: none of them outlives it."""

    def __init__(self, folder: Path, groups: Mapping[str, tuple[str, ...]] = GROUPS) -> None:
        self.groups = groups
        self.effects = folder / "effects.txt"
        self.stack = Stack(folder)
        self.receiver = OtlpReceiver()

    def __enter__(self) -> Crew:
        self.stack.__enter__()
        self.receiver.start()
        try:
            self._add_all()
            self.stack.start_all()
        except BaseException:
            self.stack.__exit__(None, None, None)
            self.receiver.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.names:
            if self.is_running(name):
                self.signal(name, signal.SIGCONT)
        self.stack.__exit__(kind, error, trace)
        self.receiver.stop()

    def _add_all(self) -> None:
        self.stack.model(TEAM / "script.yaml")
        for agent in AGENTS:
            for name in self.groups.get(agent, ()):
                self.stack.agent(TEAM / f"{agent}.yaml", name=name, start=False)
        for name in self.groups["tools"]:
            self.stack.add(name, "cadre_tools", TEAM / "tools.py", start=False, CHAOS_EFFECTS=str(self.effects))
        for name in self.groups["sandbox"]:
            self.stack.add(name, "cadre_sandbox", start=False)
        add_tracers(self.stack, self.receiver)
        self.stack.gateway(start=False)

    @property
    def folder(self) -> Path:
        return self.stack.folder

    @property
    def names(self) -> list[str]:
        return [name for names in self.groups.values() for name in names]

    @property
    def gateway_url(self) -> str:
        return self._service("gateway").url

    @property
    def nats_url(self) -> str:
        return self.stack.nats.url

    def process(self, name: str) -> Process:
        if name == "nats":
            return self.stack.nats.process
        process = self._service(name).process
        assert process is not None
        return process

    def is_running(self, name: str) -> bool:
        return self.process(name).poll() is None

    def signal(self, name: str, number: int) -> None:
        os.kill(self.process(name).pid, number)

    async def ended(self, name: str) -> int:
        """The exit status. Raises TimeoutError."""
        within = patience(120)
        try:
            return await asyncio.to_thread(self.process(name).wait, within)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{name} did not end within {within:g} s") from error

    async def start(self, name: str) -> None:
        if name == "nats":
            await asyncio.to_thread(self.stack.nats.start)
        else:
            self._service(name).start(wait=False)

    async def ready(self, name: str) -> None:
        """Until the service says that it can work. Raises AssertionError when it died, or takes too long."""
        if name == "nats":
            assert self.is_running(name), "the NATS server died"
        else:
            await asyncio.to_thread(self._service(name).wait_ready)

    def _service(self, name: str) -> Service:
        return self.stack.services[name]
