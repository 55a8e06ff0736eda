"""Standing budgets on a real server: no run begins beyond, no matter who would start it, at any gateway; it is reported
once."""

import asyncio
import time
from pathlib import Path

import httpx2

from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import GatewayProcess, with_boss
from integration.test_notice_delivery import SECRET, Receiver, ids, put
from integration.test_notice_delivery import receiver as receiver
from integration.test_schedules import outcomes, shown
from integration.test_statistics import run_of

TASK = {"agent": "boss", "task": "Do it."}


async def test_nothing_begins_beyond_a_budget(nats_server: NatsServer, tmp_path: Path, receiver: Receiver) -> None:
    desk = {"CADRE_SECRET_DESK": SECRET, "CADRE_NOTICE_PRIVATE": "127.0.0.0/8"}
    gateway = GatewayProcess(nats_server.url, tmp_path, None, **desk)
    other = GatewayProcess(nats_server.url, tmp_path, gateway.settings, **desk)
    elsewhere = httpx2.AsyncClient(base_url=other.url, timeout=patience())
    try:
        async with with_boss(gateway) as world:
            begun = {"Idempotency-Key": "once"}
            assert (await world.http.post("/v1/runs", json=TASK, headers=begun)).status_code == 202
            await put(world, receiver.url, events=["budget.standing_warning", "budget.standing_exhausted"])
            await run_of(world, "boss")  # 12 tokens, before there is a budget
            spec = {"window": "month", "tokens": 24, "team": "boss"}
            made = await world.http.put("/v1/budgets/boss-monthly", json=spec)
            assert (made.status_code, made.json()["spec"]) == (200, spec), made.text

            async def used(share: float) -> bool:
                found = (await world.http.get("/v1/budgets")).json()["budgets"]
                return [one["share"] for one in found] == [share]

            await until(lambda: used(0.5))
            assert (await elsewhere.post("/v1/runs", json=TASK)).status_code == 202
            await run_of(world, "boss")
            await until(lambda: used(1.0))

            for http in (world.http, elsewhere):

                async def refusal(http: httpx2.AsyncClient = http) -> httpx2.Response | None:
                    answer = await http.post("/v1/runs", json=TASK)
                    return answer if answer.status_code == 429 else None

                answer = await until(refusal)
                problem = answer.json()
                assert problem["code"] == "budget-exhausted"
                assert "budget 'boss-monthly': 24 of 24 tokens of this month are used" in problem["detail"]
                left = problem["opens_at"] - time.time()
                assert 0 <= float(answer.headers["Retry-After"]) - left < 5
            again = await world.http.post("/v1/runs", json=TASK, headers=begun)
            assert again.status_code == 202, "what it started before is found"

            tick = {"name": "late", "agent": "boss", "task": "Tick.", "every": 1, "count": 1}
            assert (await world.http.post("/v1/schedules", json=tick)).status_code == 201
            assert await outcomes(world, "late", 1) == ["failed"]
            assert "24 of 24 tokens" in (await shown(world, "late"))["outcomes"][0]["detail"]

            told = await ids(receiver, 2)
            assert (await world.http.put("/v1/budgets/boss-monthly", json={**spec, "paused": True})).is_success
            assert (await world.http.post("/v1/runs", json=TASK)).status_code == 202, "a paused budget refuses nothing"
            assert (await world.http.put("/v1/budgets/boss-monthly", json=spec)).json()["share"] == 1.0
            assert (await world.http.post("/v1/runs", json=TASK)).status_code == 429
            assert {one["type"].rpartition("_")[2] for one in receiver.taken} == {"warning", "exhausted"}
            assert (await world.http.put("/v1/budgets/boss-monthly", json={**spec, "tokens": 240})).is_success
            assert (await world.http.post("/v1/runs", json=TASK)).status_code == 202
            assert (await world.http.delete("/v1/budgets/boss-monthly")).status_code == 204
            assert (await world.http.get("/v1/budgets/boss-monthly")).status_code == 404
            assert await ids(receiver, 2) == told, "once, though two gateways look"
    finally:
        await elsewhere.aclose()
        gateway.kill()
        other.kill()


async def test_a_budget_that_others_write_and_remove_meanwhile_is_shown_or_unknown(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    other = GatewayProcess(nats_server.url, tmp_path, gateway.settings)
    try:
        async with with_boss(gateway) as world:
            async with httpx2.AsyncClient(base_url=other.url, timeout=patience()) as elsewhere:
                spec = {"window": "month", "tokens": 24}

                async def ask(method: str, http: httpx2.AsyncClient) -> tuple[str, int]:
                    json = spec if method == "PUT" else None
                    answer = await http.request(method, "/v1/budgets/busy", json=json)
                    return method, answer.status_code

                asked = [ask(method, http) for method in ("PUT", "GET", "DELETE") for http in (world.http, elsewhere)]
                answers = await asyncio.gather(*asked, *(ask("GET", world.http) for _ in range(20)))
                for _ in range(20):
                    answers += await asyncio.gather(
                        *(ask(method, http) for method in ("PUT", "GET", "DELETE") for http in (world.http, elsewhere))
                    )
            assert {status for method, status in answers if method == "PUT"} == {200}
            assert {status for method, status in answers if method == "GET"} <= {200, 404}
            assert {status for method, status in answers if method == "DELETE"} <= {204, 404}
    finally:
        gateway.kill()
        other.kill()
