"""The memory service killed, away, expired, and with an embeddings endpoint that comes and goes."""

import asyncio

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.errors import MemoryUnavailable
from cadre.protocol.memory import ListRequest, SearchRequest, Selection
from cadre.protocol.messages import (
    Erased,
    MemoryScope,
    Origin,
    ToolCall,
)
from cadre.testing import running_model
from harness.nats_server import free_port
from harness.patience import patience, until
from integration.memory_bench import EVERY, Bench

ROUNDS = 2
PER_ROUND = 25


def origin(writes: MemoryScope = "agent") -> Origin:
    return Origin(reads=EVERY, writes=writes)


async def test_nothing_acknowledged_is_lost_when_it_is_killed(bench: Bench) -> None:
    """kill -9 right behind acknowledgements, under load, again and again; in the end everything is there once."""
    calls = [
        bench.call("remember", text=f"Fact number {number} of many.", origin=origin())
        for number in range(ROUNDS * PER_ROUND)
    ]
    acknowledged: set[str] = set()
    five_more = asyncio.Semaphore(0)

    async def wait_for(call: ToolCall) -> None:
        result = await bench.answer(call)
        assert result.error is None
        acknowledged.add(call.id)
        five_more.release()

    waiting = [asyncio.create_task(wait_for(call)) for call in calls]
    service = await bench.start()
    for at in range(0, len(calls), PER_ROUND):
        for call in calls[at : at + PER_ROUND]:
            await bench.bus.send(call, call.agent)
        async with asyncio.timeout(patience()):
            for _ in range(5):
                await five_more.acquire()
        await service.kill()
        told = set(acknowledged)
        service = await bench.start()
        assert told <= {one.memory for one in await bench.everything()}
    async with asyncio.timeout(patience()):
        await asyncio.gather(*waiting)
    await until(bench.all_acked)
    assert sorted(one.memory for one in await bench.everything()) == sorted(call.id for call in calls)


async def test_the_memories_of_an_erased_run_go_with_it(bench: Bench) -> None:
    service = await bench.start()
    await bench.remember("Of the run alone.", tree="aaa", origin=origin("run"))
    shared = await bench.remember("For all of them.", tree="aaa", origin=origin(), place="2_0")
    other = await bench.remember("Of another run.", tree="bbb", origin=origin("run"))
    await service.kill()
    # Erased while no service runs: it hears of it when it is back.
    lifecycle = Erased(id="aaa:erased", tree="aaa", run="aaa", at=0.0)
    await jetstream.append(bench.nc, bench.topology.lifecycle("aaa"), encode(lifecycle))
    await bench.start()

    async def gone() -> bool:
        return {one.memory for one in await bench.everything()} == {shared, other}

    await until(gone)


async def test_what_has_expired_is_neither_shown_nor_kept(bench: Bench) -> None:
    service = await bench.start(CADRE_MEMORY_KEEP_DAYS="0.00001")
    await bench.remember("Gone in a second.", origin=origin())

    async def hidden() -> bool:
        return await bench.texts("Gone", origin=origin()) == []

    await until(hidden)
    assert (await bench.people.list(ListRequest(selection=Selection(all=True)))).memories == []
    await service.kill()
    await bench.start()  # it looks what has expired when it begins

    async def reaped() -> bool:
        return await bench.everything() == []

    await until(reaped)


async def test_without_a_service_it_is_said_what_to_do(bench: Bench) -> None:
    with pytest.raises(MemoryUnavailable, match="start one with `cadre memory`"):
        await bench.people.stats()


async def test_an_endpoint_that_goes_away_degrades_and_comes_back(bench: Bench) -> None:
    port = free_port()
    variables = {
        "CADRE_MEMORY_EMBEDDINGS": "openai",
        "CADRE_MEMORY_EMBEDDINGS_URL": f"http://127.0.0.1:{port}/v1",
        "CADRE_MEMORY_EMBEDDINGS_MODEL": "scripted",
    }
    with running_model("--port", str(port)):
        service = await bench.start(**variables)
        await bench.remember("The ferry to Bornholm leaves at nine.", origin=origin())
        await bench.all_embedded()
        found = await bench.recall("ferry", origin=origin())
        assert (len(found["hits"]), found["degraded"], found["why"]) == (1, False, "")

    # Away: what is remembered now is found by its words, and it is said that only those were compared.
    late = await bench.remember("The night train leaves at ten.", origin=origin())
    found = await bench.recall("night train", origin=origin())
    assert found["hits"][0]["memory"] == late
    assert found["degraded"] is True
    assert "cannot reach the embeddings endpoint" in found["why"]
    assert [one.embedded for one in await bench.everything() if one.memory == late] == [False]
    # Killed meanwhile: it knows the endpoint's dimensions and what is still to be done.
    await service.kill()
    service = await bench.start(**variables)
    assert (await bench.recall("ferry", origin=origin()))["degraded"] is True

    async def told() -> bool:
        return "by words only" in (await service.readiness())[1]["embeddings"]

    await until(told)
    with running_model("--port", str(port)):

        async def whole() -> bool:
            return (await bench.recall("ferry", origin=origin()))["degraded"] is False

        await until(whole)
        # It has heard of that: what was remembered meanwhile need not wait any longer.
        await bench.all_embedded()
        assert all(one.embedded for one in await bench.everything())


async def test_another_model_gets_its_own_vectors_of_what_is_there(bench: Bench) -> None:
    service = await bench.start()
    memory = await bench.remember("The lighthouse keeper is called Ole.", origin=origin())
    await service.kill()
    with running_model() as model:
        variables = {
            "CADRE_MEMORY_EMBEDDINGS_URL": model.url,
            "CADRE_MEMORY_EMBEDDINGS_MODEL": "scripted",
            "CADRE_MEMORY_EMBEDDINGS": "auto",
        }
        for dim in ("", "32"):
            more = {"CADRE_MEMORY_EMBEDDINGS_DIM": dim} if dim else {}
            service = await bench.start(**variables, **more)

            async def moved() -> bool:
                asked = SearchRequest(selection=Selection(all=True), query="lighthouse keeper")
                found = await bench.people.search(asked)
                assert [hit.memory for hit in found.hits] == [memory], "readers never see a gap"
                return not found.degraded

            await until(moved)
            assert [one.embedded for one in await bench.everything()] == [True]
            await service.kill()
