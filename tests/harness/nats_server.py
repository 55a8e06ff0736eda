"""A real nats-server that can be killed and started again on its data."""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from harness.patience import patience
from harness.standstill import stand_still

NATS_CONFIG = """
listen: 127.0.0.1:{port}
max_payload: 1MB
"""
JETSTREAM_CONFIG = """
jetstream {{ store_dir: "{store}", sync_interval: "{sync}" }}
"""


class NatsServer:
    """A nats-server process on its own port that can be killed and started again."""

    def __init__(
        self, folder: Path, *, jetstream: bool = True, sync: str = "always", port: int = 0, more: str = ""
    ) -> None:
        """`sync` is the server's `sync_interval`; `more` goes into its configuration as it is."""
        self.port = port or free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.store = folder / "store"
        self._config = folder / "nats.conf"
        self._log = folder / "nats.log"
        config = (NATS_CONFIG + (JETSTREAM_CONFIG if jetstream else "")).format(
            port=self.port, store=self.store, sync=sync
        )
        self._config.write_text(config + more)
        self._process: subprocess.Popen[bytes] | None = None
        self.group: int | None = None
        """Process group that the server joins."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [nats_binary(), "-c", str(self._config)], stdout=log, stderr=log, process_group=self.group
            )
        deadline = time.monotonic() + patience()
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        """As a cluster has them."""
        return [self.pid]

    def kill(self) -> None:
        """kill -9"""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Until `go_on`."""
        stand_still(self.pid)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def retire(self) -> None:
        """Has it go gracefully (lame duck mode): leaders step down, clients are sent away, it ends."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def ended(self) -> int:
        """The exit status, once the process has ended on its own."""
        assert self._process is not None
        return self._process.wait(timeout=patience())

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=patience())

    def start_again(self, old: str, new: str) -> None:
        """Start again on the same store, with what the regular expression `old` finds in the configuration replaced."""
        self.stop()
        text = self._config.read_text()
        assert re.search(old, text)
        self._config.write_text(re.sub(old, new, text, flags=re.DOTALL))
        self.start()


def nats_binary() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is missing: `make test` installs it into the environment"
    return found


_FIRST, _EACH, _WORKERS = 10_000, 2_700, 8
_given: set[int] = set()


def free_port() -> int:
    """A port that no one listens on, below those that the system gives to outgoing connections: one of these could
    be taken in the moment before its user listens there. No port is given twice by one process, and workers
    that test side by side have ports of their own."""
    worker = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", ""))) or 0) % _WORKERS
    first = _FIRST + worker * _EACH
    while True:
        port = random.SystemRandom().randrange(first, first + _EACH)
        if port in _given:
            continue
        _given.add(port)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
