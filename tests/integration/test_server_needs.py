"""A NATS server, or an account, that allows less than Cadre needs: starts, readiness and doctor say what and where."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import check, provision
from cadre.errors import BusUnavailable, SetupError
from cadre.protocol.topology import Topology
from cadre.settings import Settings, child_environment
from harness.command import Commands
from harness.nats_server import NatsServer, free_port
from harness.patience import eventually, patience

TOOLS = str(Path(__file__).parent / "executor_tools.py")
_SMALL = 65_536

_ACCOUNT = """
accounts {{
  TEAM {{ jetstream: {jetstream}, users: [ {{ user: team, password: team{permissions} }} ] }}
}}
no_auth_user: team
"""


def account(jetstream: str = "enabled", permissions: str = "") -> str:
    return _ACCOUNT.format(jetstream=jetstream, permissions=f", permissions: {permissions}" if permissions else "")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


class Service:
    """A service as a process, with its own port."""

    def __init__(self, url: str, *argv: str, log: Path) -> None:
        self.port = free_port()
        self.log = log
        more = {"CADRE_NATS_URL": url, "CADRE_SHARDS": "1", "CADRE_PORT": str(self.port)}
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *argv], env=child_environment(**more), stdout=out, stderr=out
            )

    def code(self) -> str:
        """The code that /readyz gives; "" while it does not answer, "ready" once it is."""
        with contextlib.suppress(httpx2.HTTPError):
            answer = httpx2.get(f"http://127.0.0.1:{self.port}/readyz", timeout=patience())
            return str(answer.json().get("code", "ready"))
        return ""

    def until(self, code: str) -> None:
        eventually(lambda: self.code() == code, what=f"{code} at /readyz", state=self.log.read_text)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(url: str, *argv: str, log: Path) -> Iterator[Service]:
    service = Service(url, *argv, log=log)
    try:
        yield service
    finally:
        service.end()


def doctor(url: str, folder: Path) -> list[str]:
    """The lines of `cadre doctor` about what fails."""
    done = Commands(folder, child_environment(CADRE_NATS_URL=url, CADRE_SHARDS="1"))("doctor")
    assert done.returncode == 1
    return [line for line in done.stdout.splitlines() if line.startswith("fail")]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (f"max_payload: {_SMALL}\n", "max_payload"),
        (account(jetstream="disabled"), "JetStream is off"),
        (account(jetstream="{ max_streams: 3 }"), "max_streams"),
        (account(jetstream="{ max_consumers: 1 }"), "max_consumers"),
        (account(permissions='{ publish: { deny: "$JS.API.>" } }'), "may not publish to $JS.API"),
        (account(permissions='{ subscribe: { deny: "_INBOX.>" } }'), "may not subscribe to _INBOX"),
    ],
)
def test_a_start_says_what_the_server_does_not_allow(tmp_path: Path, more: str, named: str) -> None:
    with NatsServer(tmp_path, more=more) as server:
        for argv in (("cadre_tools", TOOLS), ("cadre_gateway",)):
            with running(server.url, *argv, log=tmp_path / "log") as service:
                assert service.process.wait(timeout=patience()) == 2
            (line,) = [one for one in service.log.read_text().splitlines() if one.startswith("cadre: ")]
            assert named in line
            assert "defect" not in line
        found = doctor(server.url, tmp_path)
        assert any(named in line for line in found) or named == "max_consumers", "queues are each service's"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("max_payload: 1MB", f"max_payload: {_SMALL}", "max-payload"),
        (r"jetstream \{.*?\}", "", "jetstream-off"),
    ],
)
def test_a_server_that_comes_back_with_less_makes_services_unready(
    server: NatsServer, tmp_path: Path, old: str, new: str, code: str
) -> None:
    kept = server._config.read_text()
    with running(server.url, "cadre_tools", TOOLS, log=tmp_path / "log") as service:
        service.until("ready")
        server.start_again(old, new)
        service.until(code)
        server.stop()
        server._config.write_text(kept)
        server.start()
        service.until("ready")
        assert service.process.poll() is None


async def test_a_message_that_only_max_payload_keeps_back_is_sent_later(server: NatsServer) -> None:
    settings, topology = Settings(nats_url=server.url, shards=1), Topology(1)
    nc = await connect(settings, "test")
    await provision(nc, settings)
    await nc.close()
    server.start_again("max_payload: 1MB", f"max_payload: {_SMALL}")
    nc = await connect(settings, "test")
    (problem,) = await check(nc, settings)
    assert "max_payload" in problem
    with pytest.raises(SetupError):
        await provision(nc, settings)
    subject = topology.quarantine("t", 1)
    with pytest.raises(BusUnavailable):
        await jetstream.append(nc, subject, bytes(300_000))
    await jetstream.append(nc, subject, bytes(_SMALL // 2))
    await nc.close()
    server.start_again(f"max_payload: {_SMALL}", "max_payload: 1MB")
    nc = await connect(settings, "test")
    await jetstream.append(nc, subject, bytes(300_000))
    await nc.close()


def test_a_server_without_a_connection_left_is_waited_for_and_named(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(NatsServer(tmp_path, more="max_connections: 1\n"))
        first = stack.enter_context(running(server.url, "cadre_tools", TOOLS, log=tmp_path / "first"))
        first.until("ready")
        second = stack.enter_context(running(server.url, "cadre_tools", TOOLS, log=tmp_path / "second"))

        def says_why() -> bool:
            return "max_connections" in second.log.read_text()

        eventually(says_why, what="its log says why", state=second.log.read_text)
        assert second.process.poll() is None
        assert second.code() == "bus-unavailable"
        assert any("max_connections" in line for line in doctor(server.url, tmp_path))
        first.end()
        second.until("ready")
