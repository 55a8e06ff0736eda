"""Tests of what `cadre doctor` says of a loss of power, from the monitoring of real servers and the copies of real
streams."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.streams.provision import provision
from cadre.cli.team.doctor import Finding, streams
from cadre.local import nats_server
from cadre.settings import Settings
from harness.nats_cluster import SIZE, NatsCluster
from harness.nats_server import NatsServer, free_port

HOST = "127.0.0.1"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path, sync="100ms")
    cluster.start()
    yield cluster
    cluster.stop()


async def _known(server: NatsServer) -> str:
    info = await nats_server.server_info(HOST, server.port)
    assert info is not None
    return await nats_server.server_sync(HOST, info)


async def _said(server: NatsServer, settings: Settings) -> list[Finding]:
    """The findings that speak of power; the deployment's streams are there."""
    await (await _provisioned(settings)).close()
    found = await streams(settings, HOST, await _known(server))
    assert all(finding.verdict != "fail" for finding in found), found
    return [finding for finding in found if "sync_" in finding.text]


async def _provisioned(settings: Settings) -> NatsClient:
    nc = await connect(settings, "test")
    await provision(nc, settings)
    return nc


@pytest.mark.parametrize(("sync", "verdict"), [("always", "ok"), ("10ms", "warn"), ("10s", "warn"), ("120s", "warn")])
async def test_one_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sync: str, verdict: str) -> None:
    monkeypatch.setattr(nats_server, "MONITOR_PORT", free_port())
    with NatsServer(tmp_path, sync=sync, more=f'http: "{HOST}:{nats_server.MONITOR_PORT}"\n') as server:
        [said] = await _said(server, Settings(nats_url=server.url, shards=1))
    assert said.verdict == verdict
    assert sync in said.text


async def test_servers_that_keep_three_copies(monkeypatch: pytest.MonkeyPatch, cluster: NatsCluster) -> None:
    monkeypatch.setattr(nats_server, "MONITOR_PORT", cluster.monitors["n2"])
    # Behind the name of a service any of them may answer.
    [said] = await _said(cluster.servers["n1"], Settings(nats_url=cluster.url, shards=1, replicas=SIZE))
    assert said.verdict == "ok"
    assert "100ms" in said.text
    assert str(SIZE) in said.text


async def test_three_servers_with_one_copy_are_no_better_than_one(
    monkeypatch: pytest.MonkeyPatch, cluster: NatsCluster
) -> None:
    monkeypatch.setattr(nats_server, "MONITOR_PORT", cluster.monitors["n1"])
    [said] = await _said(cluster.servers["n1"], Settings(nats_url=cluster.url, shards=1))
    assert said.verdict == "warn"
    assert "100ms" in said.text


async def test_what_no_monitoring_says_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    silent, other = free_port(), free_port()
    with (
        NatsServer(tmp_path) as server,
        NatsServer(tmp_path / "other", sync="10s", more=f'http: "{HOST}:{other}"\n'),
    ):
        monkeypatch.setattr(nats_server, "MONITOR_PORT", silent)
        [said] = await _said(server, Settings(nats_url=server.url, shards=1))
        assert said.verdict == "warn"
        assert f"http://{HOST}:{silent}/jsz" in said.text
        monkeypatch.setattr(nats_server, "MONITOR_PORT", other)
        assert await _known(server) == "", "another server's monitoring"
        monkeypatch.setattr(nats_server, "MONITOR_PORT", server.port)
        assert await _known(server) == "", "no HTTP"
