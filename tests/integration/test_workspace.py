"""The files of a run on a real server: written by executors and by HTTP, erased, exported and imported with the run."""

import asyncio
from typing import Any

import msgspec
import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams.provision import provision
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.errors import BlobMissing, Fenced
from cadre.protocol.messages import ToolResult
from cadre.settings import Settings
from integration.executor_bench import Bench
from integration.gateway_world import World, new_run
from integration.remains import gone, left_of

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels " * 20


def files_of(world: World, tree: str, call: str) -> WorkspaceStore:
    index = NatsFileIndex(world.nc, world.topology)
    return WorkspaceStore(index, world.blobs, tree=tree, call=call, by="tool", most_bytes=10_000)


async def open_run(world: World) -> str:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted())
    await world.listed(run)
    return run


# --- the index


async def test_writers_of_one_path_follow_each_other(settings: Settings) -> None:
    nc = await connect(settings, "test")
    try:
        topology = await provision(nc, settings)
        index = NatsFileIndex(nc, topology)
        tree = new_run()
        blobs = NatsBlobs(nc, topology)
        calls = [
            WorkspaceStore(index, blobs, tree=tree, call=f"{tree}_1_{n}", by="t", most_bytes=100) for n in range(5)
        ]
        written = await asyncio.gather(
            *(calls[n].write("a.txt", str(n)) for n in range(5)), calls[0].write("b/c.txt", "x")
        )
        assert sorted(entry.version for entry in written[:5]) == [1, 2, 3, 4, 5]
        assert [entry.path for entry in await calls[1].files()] == ["a.txt", "b/c.txt"]
        assert await index.count(tree) == 2
        record, fence = await index.read(tree, "a.txt") or (None, 0)
        assert record is not None
        assert record.version == 5
        with pytest.raises(Fenced):
            await index.write(record, fence - 1)
    finally:
        await nc.close()


# --- executors


async def test_tools_return_take_write_and_read_files(bench: Bench) -> None:
    await bench.start()
    drawn = await bench.ask("draw")
    assert drawn.error is None
    picture = drawn.output["picture"]["$file"]
    assert (picture["media_type"], picture["name"]) == ("image/png", "a.png")
    assert await bench.blobs.get(picture["ref"]) == await bench.blobs.get(drawn.output["raw"]["$file"]["ref"])
    tree = new_run()
    kept = bench.new_call("keep", {"path": "shots/a.png", "file": drawn.output["picture"]}, tree=tree)
    await bench.send(kept)
    assert (await bench.answer(kept)).output == {"path": "shots/a.png", "version": 1}
    asked = bench.new_call("weigh", {"file": "shots/a.png"}, tree=tree)
    call = msgspec.structs.replace(asked, id=f"{tree}_2_0")
    await bench.send(call)
    assert (await bench.answer(call)).output == picture["size"]


async def test_an_output_is_cut_to_what_the_caller_reads(bench: Bench) -> None:
    await bench.start()
    call = msgspec.structs.replace(bench.new_call("long_text", {"chars": 5000}), output_chars=1000)
    await bench.send(call)
    result = await bench.answer(call)
    assert len(result.output) <= 1000
    assert result.blob is not None
    assert f'read_output(ref="{result.blob}", start=' in result.output
    assert len(await bench.blobs.get(result.blob)) == 5000


async def test_a_file_over_the_limit_is_not_kept_and_a_note_says_so(bench: Bench) -> None:
    await bench.start(CADRE_FILE_BYTES="50")
    result = await bench.ask("draw")
    assert isinstance(result, ToolResult)
    assert (result.error, result.files) == (None, [])
    assert "50 (CADRE_FILE_BYTES)" in (result.note or "")


# --- over HTTP


async def test_a_person_gives_a_run_files_and_downloads_them(world: World) -> None:
    run = await open_run(world)
    where = f"/v1/runs/{run}/files"
    assert (await world.http.get(where)).json() == {"files": []}
    put = await world.http.put(f"{where}/in/shot.png", content=PNG, headers={"Content-Type": "text/html"})
    assert put.status_code == 200, put.text
    entry = put.json()
    assert (entry["path"], entry["version"], entry["media_type"]) == ("in/shot.png", 1, "image/png")
    [listed] = (await world.http.get(where)).json()["files"]
    assert listed == entry
    found = await world.http.get(f"{where}/in/shot.png")
    assert (found.content, found.headers["content-type"]) == (PNG, "image/png")
    assert found.headers["content-disposition"].startswith('attachment; filename="shot.png"')
    assert found.headers["x-content-type-options"] == "nosniff"
    child = await world.http.get(f"/v1/runs/{run}_1_0/files")
    assert child.status_code == 404, "a run that is not there has no files"
    table = await world.http.put(
        f"{where}/in/t.csv", content=b"a,b\n", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert table.json()["media_type"] == "text/csv", "what curl says of every file unasked"
    assert (await world.http.delete(f"{where}/in/t.csv")).status_code == 204
    stale = await world.http.put(f"{where}/in/shot.png?expected=0", content=b"x")
    assert (stale.status_code, stale.json()["code"]) == (409, "file-changed")
    assert (await world.http.delete(f"{where}/in/shot.png")).status_code == 204
    missing = await world.http.get(f"{where}/in/shot.png")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown-file")
    assert "'in/shot.png'" in missing.json()["detail"]
    assert "t.csv" not in missing.json()["detail"], "no file that is gone is named"


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("a%5Cb", 422, "with / between folders"),
        ("%2E%2E%2Fa", 422, "'../a'"),
        ("caf%E9.txt", 422, "caf%E9.txt' is not UTF-8"),
    ],
)
async def test_wrong_paths_are_problems(world: World, path: str, status: int, why: str) -> None:
    run = await open_run(world)
    answer = await world.http.put(f"/v1/runs/{run}/files/{path}", content=b"x")
    assert answer.status_code == status, answer.text
    assert why in answer.json()["detail"]
    assert (await world.http.get(f"/v1/runs/{run}/files")).json() == {"files": []}


async def test_a_run_that_has_ended_takes_no_files(world: World) -> None:
    run = await world.ended_run()
    answer = await world.http.put(f"/v1/runs/{run}/files/a", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (409, "run-ended")


async def test_blobs_are_downloads_whatever_they_hold(world: World) -> None:
    page = await world.blobs.put(b"<script>alert(1)</script>")
    name = page.removeprefix("blob:")
    asked = {"name": 'a"\r\n/../b.html', "type": "text/html"}
    answer = await world.http.get(f"/v1/blobs/{name}", params=asked)
    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-disposition"].startswith('attachment; filename="a..b.html"')
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert (await world.http.get(f"/v1/blobs/{name}?type=no%20type")).status_code == 422
    for wrong in ("0" * 64, "nonsense"):
        missing = await world.http.get(f"/v1/blobs/{wrong}")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown-blob")


async def test_a_run_begins_with_files(world: World) -> None:
    data = "data:text/csv;base64,YSxiCjEsMgo="
    answer = await world.http.post("/v1/runs", json={"agent": "boss", "task": "Go.", "files": {"in/a.csv": data}})
    assert answer.status_code == 202, answer.text
    run = answer.json()["id"]
    found = await world.http.get(f"/v1/runs/{run}/files/in/a.csv")
    assert (found.text, found.headers["content-type"].partition(";")[0]) == ("a,b\n1,2\n", "text/csv")
    wrong = {"agent": "boss", "task": "Go.", "files": {"a": "no url"}}
    refused = await world.http.post("/v1/runs", json=wrong)
    assert refused.status_code == 422
    assert "files.a: send a `data:" in refused.json()["detail"]


# --- erased, exported, imported


async def finished_with_files(world: World, **files: bytes) -> tuple[str, list[str]]:
    """A finished run that has had these files, the first of them in two versions; and their blobs."""
    run = new_run()
    workspace = files_of(world, run, f"{run}_1_0")
    first = next(iter(files))
    refs = [(await workspace.write(first, b"an earlier version " + run.encode())).ref]
    refs += [(await workspace.write(path, data)).ref for path, data in files.items()]
    await world.ended_run(run)
    return run, refs


async def test_an_erased_run_leaves_none_of_its_files(world: World) -> None:
    run, refs = await finished_with_files(world, a=f"secret of {new_run()}".encode())
    assert await left_of(world, run, *refs)
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    await gone(world, run, *refs)


async def test_a_file_that_another_run_has_too_stays(world: World) -> None:
    shared = f"shared by two {new_run()}".encode()
    one, refs = await finished_with_files(world, a=shared)
    other, _ = await finished_with_files(world, b=shared)
    # Behind its gateway's tail is what it knows: an entry of the other run comes after its file.
    assert (await world.http.delete(f"/v1/runs/{one}")).status_code == 200
    with pytest.raises(BlobMissing):
        await world.blobs.get(refs[0])
    found = await world.http.get(f"/v1/runs/{other}/files/b")
    assert found.content == shared


async def test_what_is_written_after_the_erasure_is_removed(world: World) -> None:
    run, _ = await finished_with_files(world, a=b"x")
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    await files_of(world, run, f"{run}_1_9").write("late", "too late")
    await gone(world, run)


async def test_files_move_with_their_run(world: World, other: World) -> None:
    run, refs = await finished_with_files(world, a=PNG, b=b"text")
    exported = (await world.http.get(f"/v1/runs/{run}/export")).content
    answer = await other.http.post("/v1/runs/import", content=exported)
    assert answer.status_code == 201, answer.text
    files: list[dict[str, Any]] = (await other.http.get(f"/v1/runs/{run}/files")).json()["files"]
    assert [(file["path"], file["version"]) for file in files] == [("a", 2), ("b", 1)]
    assert (await other.http.get(f"/v1/runs/{run}/files/a")).content == PNG
    assert (await other.http.delete(f"/v1/runs/{run}")).status_code == 200
    await gone(other, run, *refs)
