"""The files of a run, searched by its agents: real files on a real bus, a real index, services that are killed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.protocol.memory import Selection
from cadre.protocol.messages import (
    Erased,
    Origin,
)
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import until
from integration.memory_bench import EVERY, Bench, running_service

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture(scope="module")
def deployment(nats_server: NatsServer) -> Settings:
    return Settings(nats_url=nats_server.url, prefix=f"res{uuid4().hex[:8]}", shards=2)


@pytest.fixture(scope="module")
def service(deployment: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(deployment, tmp_path_factory.mktemp("memory")) as url:
        yield url


@pytest.fixture
async def bench(deployment: Settings, service: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(deployment, tmp_path) as one:
        yield one


def workspace(bench: Bench, tree: str) -> WorkspaceStore:
    return WorkspaceStore(
        *(NatsFileIndex(bench.nc, bench.topology), bench.blobs),
        tree=tree,
        call=uuid4().hex,
        by="gateway",
        most_bytes=10_000_000,
    )


async def query(bench: Bench, tree: str, query: str, **about: Any) -> dict[str, Any]:
    place = f"{uuid4().int % 10**9}_0"
    call = bench.call("query_resources", tree=tree, place=place, query=query, **about)
    result = await bench.ask(call)
    assert result.error is None, result.error
    found: dict[str, Any] = result.output
    return found


def paths(found: dict[str, Any]) -> list[str]:
    return [hit["path"] for hit in found["hits"]]


async def test_a_passage_is_found_in_the_file_that_holds_it(bench: Bench) -> None:
    tree = uuid4().hex
    files = workspace(bench, tree)
    filler = " ".join(f"Line {number} tells of nothing at all." for number in range(1200))
    await files.write("contracts/lease.md", f"{filler} The rent is due on the third of the month.")
    await files.write("contracts/phone.txt", "The telephone contract ends in May.".encode("utf-16"))
    await files.write("notes.csv", "who,what\nBergmann,asked for the invoice\n")
    await files.write("photo.png", PNG)
    await files.write("empty.txt", "  \n")
    found = await query(bench, tree, "When is the rent due?", k=1)
    [hit] = found["hits"]
    assert (hit["path"], hit["version"]) == ("contracts/lease.md", 1)
    assert hit["passage"] > 3
    assert hit["text"].endswith("The rent is due on the third of the month.")
    assert found["skipped"].keys() == {"empty.txt", "photo.png"}
    assert "image/png" in found["skipped"]["photo.png"]
    assert paths(await query(bench, tree, "telephone contract", k=1)) == ["contracts/phone.txt"]
    assert paths(await query(bench, tree, "invoice rent contract", paths=["./notes.csv"])) == ["notes.csv"]
    within = paths(await query(bench, tree, "invoice rent telephone", paths=["contracts/"]))
    assert set(within) == {"contracts/lease.md", "contracts/phone.txt"}


async def test_the_present_version_counts(bench: Bench) -> None:
    tree = uuid4().hex
    files = workspace(bench, tree)
    await files.write("plan.md", "The party takes place on Friday.")
    assert paths(await query(bench, tree, "party Friday")) == ["plan.md"]
    await files.write("plan.md", "The party takes place on Sunday.")
    [hit] = (await query(bench, tree, "party Friday"))["hits"]
    assert (hit["version"], hit["text"]) == (2, "The party takes place on Sunday.")
    assert [one.text for one in await bench.everything(Selection(run=tree))] == [hit["text"]]
    await files.delete("plan.md")
    found = await query(bench, tree, "party Friday")
    assert found["hits"] == []
    assert found["why"]
    assert "CADRE_MEMORY_EMBEDDINGS_URL" not in found["why"]


async def test_another_run_sees_nothing_of_them_and_no_recall_does(bench: Bench) -> None:
    tree, other = uuid4().hex, uuid4().hex
    await workspace(bench, tree).write("secret.txt", "The secret is marmalade.")
    assert paths(await query(bench, tree, "secret marmalade")) == ["secret.txt"]
    assert (await query(bench, other, "secret marmalade"))["hits"] == []
    everywhere = Origin(reads=EVERY, writes="run")
    assert await bench.texts("secret marmalade", tree=tree, place="9_0", origin=everywhere) == []


async def test_they_go_with_their_run(bench: Bench) -> None:
    tree = uuid4().hex
    await workspace(bench, tree).write("secret.txt", "The secret is marmalade.")
    assert paths(await query(bench, tree, "secret")) == ["secret.txt"]
    lifecycle = Erased(id=f"{tree}:erased", tree=tree, run=tree, at=0.0)
    await NatsErasure(bench.nc, bench.topology, bench.blobs).record(lifecycle, 0)

    async def gone() -> bool:
        return await bench.everything(Selection(run=tree)) == []

    await until(gone)


async def test_a_service_that_is_killed_while_it_stores_loses_and_repeats_nothing(
    deployment: Settings, nats_server: NatsServer, tmp_path: Path
) -> None:
    own = Settings(nats_url=nats_server.url, prefix=f"res{uuid4().hex[:8]}", shards=1)
    async with Bench.open(own, tmp_path) as bench:
        service = await bench.start()
        tree = uuid4().hex
        files = workspace(bench, tree)
        for number in range(40):
            text = " ".join(f"File {number} has sentence {place}." for place in range(400))
            await files.write(f"{number}.txt", f"{text} Word{number} stands here alone.")
        call = bench.call("query_resources", tree=tree, query="Word39")
        await bench.publish(call)

        async def has_begun() -> bool:
            return len(await bench.everything(Selection(run=tree))) > 5

        await until(has_begun)
        await service.kill()
        await bench.start()
        result = await bench.answer(call)
        assert result.error is None, result.error
        assert result.output["hits"][0]["path"] == "39.txt"
        kept = await bench.everything(Selection(run=tree))
        assert len({(one.memory, one.index) for one in kept}) == len(kept)
        assert len({one.memory for one in kept}) == 40
