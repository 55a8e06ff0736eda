"""The audit trail of a gateway that asks no one who they are, and the stream that keeps it."""

from cadre.adapters.nats.streams import jetstream
from integration.gateway_world import World


async def test_nobody_takes_anything_out_of_the_trail(world: World) -> None:
    run = await world.ended_run()
    answer = await world.http.post(f"/v1/runs/{run}/cancel", headers={"Cadre-User": "ann"})
    assert answer.status_code == 200
    stream = world.topology.audit_stream
    [last] = await jetstream.newest(world.nc, stream, 1)
    for subject, body in (
        (f"STREAM.PURGE.{stream}", {}),
        (f"STREAM.MSG.DELETE.{stream}", {"seq": last.seq}),
    ):
        assert "error" in await jetstream.api(world.nc, subject, body), subject
    assert [last] == await jetstream.newest(world.nc, stream, 1)
    [told] = (await world.http.get("/v1/audit", params={"target": run})).json()["entries"]
    assert (told["who"], told["action"], told.get("key")) == ("ann", "run.cancel", None)


async def test_what_an_open_gateway_refuses_fills_no_trail(world: World) -> None:
    run = await world.ended_run()
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert (await world.http.post(f"/v1/runs/{run}/cancel", headers=cross)).status_code == 403
    assert (await world.http.get("/v1/audit", params={"target": run})).json()["entries"] == []
