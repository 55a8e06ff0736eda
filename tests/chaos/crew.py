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
from harness.otlp_receiver import OtlpReceiver
from harness.patience import patience
from harness.stack import Service, Stack

TEAM = Path(__file__).parent / "team"

GROUPS: Mapping[str, tuple[str, ...]] = {
    "boss": ("boss-1", "boss-2"),
    "lead": ("lead-1", "lead-2"),
    "worker": ("worker-1", "worker-2"),
    "coder": ("coder-1", "coder-2"),
    "clerk": ("clerk-1", "clerk-2"),
    "tools": ("tools-1", "tools-2"),
    "sandbox": ("sandbox-1", "sandbox-2"),
    "gateway": ("gateway",),
    "model": ("model",),
    "tracer": TRACERS,
    "nats": ("nats",),
}


class Crew:
    """All processes by name. Use it as a context manager: none of them outlives it."""

    def __init__(self, folder: Path) -> None:
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
        for agent in ("boss", "lead", "worker", "coder", "clerk"):
            for name in GROUPS[agent]:
                self.stack.agent(TEAM / f"{agent}.yaml", name=name, start=False)
        for name in GROUPS["tools"]:
            self.stack.add(
                name, "cadre_tools", TEAM / "tools.py", start=False, CHAOS_EFFECTS=str(self.effects)
            )
        for name in GROUPS["sandbox"]:
            self.stack.add(name, "cadre_sandbox", start=False)
        add_tracers(self.stack, self.receiver)
        self.stack.gateway(start=False)

    @property
    def folder(self) -> Path:
        return self.stack.folder

    @property
    def names(self) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    @property
    def gateway_url(self) -> str:
        return self._service("gateway").url

    @property
    def nats_url(self) -> str:
        return self.stack.nats.url

    def process(self, name: str) -> subprocess.Popen[bytes]:
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
