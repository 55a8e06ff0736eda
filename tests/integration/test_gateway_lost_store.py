"""A gateway over a NATS store that was emptied shows nothing of the runs that were in it."""

import shutil
from pathlib import Path

import httpx2

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import STORE_REMEDY, provision
from cadre.protocol.topology import Topology
from harness.nats_server import NatsServer
from integration.gateway_world import GatewayProcess, new_run, with_boss


async def test_a_gateway_answers_nothing_from_a_store_that_was_lost(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        gateway = GatewayProcess(server.url, tmp_path)
        try:
            await _lose_the_store(server, gateway, tmp_path / "store")
        finally:
            gateway.kill()


async def _lose_the_store(server: NatsServer, gateway: GatewayProcess, store: Path) -> None:
    task = {"agent": "boss", "task": "Once."}
    key = {"Idempotency-Key": new_run()}
    async with with_boss(gateway) as world:
        first = await world.http.post("/v1/runs", json=task, headers=key)
        assert first.status_code == 202
        run = first.json()["id"]
        await world.finished_run(run)
        await world.listed(run, state="success")

    server.kill()
    shutil.rmtree(store)
    server.start()
    stream = Topology(1, gateway.settings.prefix).stream(0)
    assert stream in gateway.wait_for(503, code="store-lost")["missing"]
    async with httpx2.AsyncClient(base_url=gateway.url) as http:
        for answer in (
            await http.get("/v1/runs"),
            await http.get(f"/v1/runs/{run}"),
            await http.post("/v1/runs", json=task, headers=key),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
            assert STORE_REMEDY in answer.json()["detail"]

    nc = await connect(gateway.settings, "test")
    await provision(nc, gateway.settings)
    made = await jetstream.stream_info(nc, stream)
    assert made is not None
    await nc.close()
    assert gateway.wait_for(503, saying=made["created"])["code"] == "store-lost"
    gateway.stop()
    gateway.start()
    async with with_boss(gateway) as world:
        assert (await world.http.get("/v1/runs")).json()["runs"] == []
        assert (await world.http.get(f"/v1/runs/{run}")).status_code == 404
        again = await world.http.post("/v1/runs", json=task, headers=key)
        assert again.status_code == 202
        assert await world.history.task(run, run) is not None, "the new store holds what the key started"
