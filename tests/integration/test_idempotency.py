"""The header Idempotency-Key: one key is one run, at one gateway and at two, one after the other and at once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from cadre.protocol.topology import run_id_of
from harness.nats_server import NatsServer
from harness.patience import patience
from integration.gateway_world import GatewayProcess, World, new_run


async def test_one_idempotency_key_is_one_run(world: World) -> None:
    async def post(key: str) -> str:
        answer = await world.http.post(
            "/v1/runs", json={"agent": "boss", "task": "Once."}, headers={"Idempotency-Key": key}
        )
        assert answer.status_code == 202
        run: str = answer.json()["id"]
        return run

    key = new_run()
    first, second = await asyncio.gather(post(key), post(key))
    assert first == second
    assert await post(f"{key} other") != first
    await world.finished_run(first)
    await world.listed(first, state="success")
    again = await world.http.post("/v1/runs", json={"agent": "boss", "task": "Once."}, headers={"Idempotency-Key": key})
    assert (again.json()["id"], again.json()["state"]) == (first, "success")


async def test_a_key_of_another_request_is_refused(world: World) -> None:
    """Also while no agent has taken the first run up."""

    async def post(path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        answer = await world.http.post(path, json=body, headers={"Idempotency-Key": key})
        return answer.status_code, answer.json()

    key = new_run()
    status, first = await post("/v1/runs", agent="boss", task="Once.")
    assert status == 202
    assert (await post("/v1/runs", agent="boss", task="Once.", return_full_result=True))[1]["id"] == first["id"]
    assert (await post("/v1/runs", agent="boss", task="Twice."))[1]["code"] == "idempotency-key-reused"
    await world.finished_run(first["id"])
    await world.listed(first["id"], state="success")
    assert (await post("/v1/runs", agent="boss", task="Twice."))[0] == 422
    assert (await post(f"/v1/runs/{first['id']}/fork", at=1))[0] == 422


async def test_of_two_requests_with_one_key_at_once_one_starts_a_run(
    world: World, nats_server: NatsServer, gateway: GatewayProcess, tmp_path: Path
) -> None:
    # Its start takes long on a busy machine, and the agent is to stay alive meanwhile.
    other = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path, gateway.settings)
    try:
        async with httpx2.AsyncClient(base_url=other.url, timeout=patience()) as second:

            async def post(http: httpx2.AsyncClient, key: str, task: str) -> tuple[int, str]:
                body = {"agent": "boss", "task": task}
                answer = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": key})
                return answer.status_code, answer.json().get("code", task)

            for _ in range(20):
                key = new_run()
                answers = await asyncio.gather(
                    *(post(world.http, key, "This."), post(second, key, "That.")),
                    *(post(second, key, "This."), post(world.http, key, "That.")),
                )
                run = run_id_of("boss", "", key)
                begun = await world.history.task(run, run)
                assert begun is not None
                assert {said for status, said in answers if status == 202} == {begun.task}
                refused = [said for status, said in answers if status == 422]
                assert refused == ["idempotency-key-reused"] * 2, answers
    finally:
        other.kill()
