"""Three real nats-servers that hold every stream three times, on loopback; each can be killed and started again."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import httpx2

from harness.nats_server import NatsServer, free_port
from harness.patience import eventually
from harness.stack import Stack

SIZE = 3

# Clients learn of no server but those they were given, and a retiring server sends them away at once.
CLUSTER_CONFIG = """
server_name: {name}
http: "127.0.0.1:{http}"
lame_duck_grace_period: 1s
lame_duck_duration: 30s
cluster {{
  name: cadre
  listen: "127.0.0.1:{route}"
  routes: [{routes}]
  no_advertise: true
}}
"""


class NatsCluster:
    """Servers by name: `n1`, `n2`, `n3`; `monitors` are the ports of their monitoring."""

    def __init__(self, folder: Path, *, sync: str = "always") -> None:
        names = [f"n{number}" for number in range(1, SIZE + 1)]
        clients, routes, monitors = ([free_port() for _ in range(SIZE)] for _ in range(3))
        mesh = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        self.servers: dict[str, NatsServer] = {}
        self.monitors = dict(zip(names, monitors, strict=True))
        for name, port, route in zip(names, clients, routes, strict=True):
            more = CLUSTER_CONFIG.format(name=name, http=self.monitors[name], route=route, routes=mesh)
            (folder / name).mkdir()
            self.servers[name] = NatsServer(folder / name, sync=sync, port=port, more=more)

    @property
    def url(self) -> str:
        """All servers, as CADRE_NATS_URL takes them."""
        return ",".join(server.url for server in self.servers.values())

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers.values()]

    def start(self) -> None:
        for server in self.servers.values():
            server.start()
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Until every server is in the cluster and up to date with each stream and consumer that it holds."""
        for name in self.servers:
            eventually(partial(self._is_healthy, name), what=f"{name} is healthy")

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def _is_healthy(self, name: str) -> bool:
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(f"http://127.0.0.1:{self.monitors[name]}/healthz", timeout=2).status_code == 200
        return False


class ClusterStack(Stack):
    """A deployment on a cluster instead of a single server; `cluster` is started by anyone who uses it, when it
    likes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = NatsCluster(folder)
        self.environment |= {"CADRE_NATS_URL": self.cluster.url, "CADRE_REPLICAS": str(SIZE)}

    def __enter__(self) -> ClusterStack:
        return self

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        self.cluster.stop()
