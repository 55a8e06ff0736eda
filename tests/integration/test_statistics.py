"""The use of models: the same from every gateway, once each, and for good, no matter what becomes of runs and
processes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from cadre.journal.events import ModelAnswered
from cadre.protocol.usage import TokenUsage
from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, entered, new_run

ANSWERED = ModelAnswered(purpose="act", step=1, attempt=1, content="", usage=TokenUsage(10, 2, cost=0.25), model="gpt")


async def asked(url: str, **query: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=url, timeout=patience()) as http:
        answer = await http.get("/v1/stats", params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def run_of(world: World, agent: str) -> str:
    run = new_run()
    scribe = world.scribe(run, agent)
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(ANSWERED)
    await scribe.write(FINISHED)
    return run


async def test_gateways_agree_through_removals_and_restarts(nats_server: NatsServer, tmp_path: Path) -> None:
    first = GatewayProcess(nats_server.url, tmp_path)
    second = GatewayProcess(nats_server.url, tmp_path, settings=first.settings)
    try:
        async with entered(first) as world:
            for agent in ("boss", "boss", "helper"):
                removed = await run_of(world, agent)

            async def both(runs: int) -> dict[str, Any] | None:
                one, other = [await asked(each.url, by="agent,model") for each in (first, second)]
                assert all(each["total"]["runs"] <= runs for each in (one, other))
                same = one["rows"] == other["rows"] and one["total"] == other["total"]
                return one if same and one["total"]["runs"] == runs else None

            found = await until(lambda: both(3))
            boss = next(row for row in found["rows"] if (row["agent"], row["model"]) == ("boss", "gpt"))
            assert (boss["model_calls"], boss["input_tokens"], boss["cost"]) == (2, 20, 0.5)
            assert found["total"]["cost"] == 0.75

            assert (await world.http.delete(f"/v1/runs/{removed}")).status_code == 200
            assert await until(lambda: both(3))
            await asyncio.to_thread(second.stop)
            await asyncio.to_thread(first.stop)
            # The list is made again from what journals there are; the sums are not.
            first.index_file.unlink()
            await run_of(world, "boss")
            first.start()
            second.start()
            found = await until(lambda: both(4))
            assert found["total"]["model_calls"] == 4
            first.kill()
            first.start()
            assert await until(lambda: both(4))
    finally:
        first.kill()
        second.kill()


async def test_a_question_that_cannot_be_answered_is_told_why(nats_server: NatsServer, tmp_path: Path) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with entered(gateway) as world:
            for query, said in (
                ({"by": "agent,colour"}, "write some of minute, hour, day, team, agent"),
                ({"since": "yesterday"}, "since: 'yesterday': write Unix seconds, a date"),
                ({"from": "1"}, "from: unknown parameter; known parameters: since, until"),
            ):
                answer = await world.http.get("/v1/stats", params=query)
                assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text
            whole = await asked(gateway.url, since="2026-01-01", until="2026-02-01T00:00:00+01:00")
            assert whole["until"] - whole["since"] == 31 * 86_400 - 3600
            assert (await asked(gateway.url, since="7d", by=""))["rows"] == []
    finally:
        gateway.kill()
