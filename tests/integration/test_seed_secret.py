"""The secret that a pool's chance follows from."""

import asyncio

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.seed_secret import pool_secret
from cadre.adapters.nats.streams.provision import provision
from cadre.settings import Settings


async def test_all_sandboxes_of_a_pool_have_one_secret_whoever_comes_first(settings: Settings) -> None:
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    found = await asyncio.gather(*(pool_secret(nc, topology, "default") for _ in range(8)))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert await pool_secret(nc, topology, "default") == found[0]
    assert await pool_secret(nc, topology, "heavy") != found[0]
    await nc.close()
