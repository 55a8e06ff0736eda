"""A real PostgreSQL server that can be killed, paused and started again on its data."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from harness.nats_server import free_port
from harness.patience import patience

MISSING = "no PostgreSQL server here: apt-get install postgresql (Debian; only its programs are used)"


def postgres_programs() -> Path | None:
    """The folder of `postgres` and `initdb`, on the PATH or where Debian has them, or None."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((one for one in folders if (one / "initdb").exists() and (one / "postgres").exists()), None)


class PostgresServer:
    """On its own loopback port, as `nobody` where the tests are root's: the server refuses root."""

    def __init__(self, programs: Path, *, fsync: bool = False) -> None:
        """`fsync` has it write to the disk before it says that something is there."""
        self._programs = programs
        self._fsync = "on" if fsync else "off"
        # Not below pytest's folder, which no one else may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="cadre-postgres-"))
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self.port = free_port()
        self.url = f"postgresql://cadre@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", "data", "-U", "cadre", "--auth", "trust", "-E", "UTF8", "--locale", "C", "-N")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Returns when it takes connections."""
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "fsync": self._fsync}
        settings |= {"unix_socket_directories": "", "max_connections": 40, "shared_buffers": "16MB"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", *options],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                user=self._user.pw_uid if self._user is not None else None,
                group=self._user.pw_gid if self._user is not None else None,
                extra_groups=[] if self._user is not None else None,
            )
        deadline = time.monotonic() + patience()
        while b"ready to accept connections" not in self._new_log():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The process whose children are its sessions."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Ends its sessions and itself."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Ends at once, and recovers when it is started again."""
        self._end(signal.SIGQUIT)

    def keep(self) -> None:
        """Keeps what it has now, for `set_back`. It is stopped for that, and stays so."""
        self.stop()
        subprocess.run(["cp", "-a", "data", "kept"], cwd=self._folder, check=True)

    def set_back(self) -> None:
        """Has it what it had when that was kept, as when a backup is restored. It is stopped, and stays so."""
        self.stop()
        shutil.rmtree(self._folder / "data")
        (self._folder / "kept").rename(self._folder / "data")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(timeout=patience())

    def _new_log(self) -> bytes:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return (self._folder / "log").read_bytes().rpartition(b"starting PostgreSQL")[2]
        return b""

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user.pw_uid if self._user is not None else None,
            group=self._user.pw_gid if self._user is not None else None,
            extra_groups=[] if self._user is not None else None,
        )
