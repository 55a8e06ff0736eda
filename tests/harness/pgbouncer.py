"""A real PgBouncer before a PostgreSQL server: each transaction may be given another session."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from harness.nats_server import free_port
from harness.patience import patience
from harness.postgres_server import PostgresServer

MISSING = "no PgBouncer here: apt-get install pgbouncer (Debian)"


def pgbouncer_program() -> str | None:
    """Return its path, or None."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer:
    """Pools transactions on a loopback port, in fewer sessions than two gateways have connections."""

    def __init__(self, program: str, postgres: PostgresServer) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="cadre-pgbouncer-"))
        self.port = free_port()
        self.url = f"postgresql://cadre@127.0.0.1:{self.port}/postgres"
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={postgres.port} dbname=postgres user=cadre\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n"
        )
        # It refuses root, as the server does.
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        if user is not None:
            os.chown(self._folder, user, -1)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen([program, str(settings)], stdout=log, stderr=log, user=user)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + patience()
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                log = (self._folder / "log").read_text()
                assert self._process.poll() is None, log
                assert time.monotonic() < deadline, log
                time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=patience())
        shutil.rmtree(self._folder)
