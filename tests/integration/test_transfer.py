"""Runs as files: exported, erased, imported again or elsewhere, and files that are not what they should be."""

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.engine.fold import fold
from cadre.journal.events import DelegateFinished, ModelAnswered, RunAccepted, ToolAnswered
from cadre.protocol.messages import Task
from cadre.protocol.topology import call_id, task_id
from cadre_gateway.transfer.export import VERSION
from harness.patience import until
from integration.gateway_world import CALLED, FINISHED, World, new_run
from integration.remains import left_of

LARGE = "a large answer " * 30_000


async def story(world: World, run: str) -> str:
    """A tree with a child, a blob, an entry too large for its stream, and a late record; its blob."""
    blob = await world.blobs.put(b"image " * 100_000)
    root, below = world.scribe(run), world.scribe(call_id(run, 1, 0), "helper", run)
    task = Task(id=task_id(run), tree=run, run=run, at=time.time(), agent="boss", task="Go.", images=[blob])
    await root.write(RunAccepted(task=task, spec=root.accepted().spec, decided_by="tool_calling"), CALLED)
    await below.write(below.accepted("Help."), CALLED)
    await root.write(ModelAnswered(purpose="act", step=1, attempt=1, content=LARGE), CALLED)
    await below.write(FINISHED)
    await root.write(CALLED)
    await root.write(FINISHED)
    await below.write(ToolAnswered(call="late", tool="look", output="late"))
    await world.listed(run, state="success")
    return blob


async def exported(world: World, run: str) -> bytes:
    answer = await world.http.get(f"/v1/runs/{run}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/gzip"
    return answer.content


async def imported(world: World, file: bytes) -> httpx2.Response:
    return await world.http.post("/v1/runs/import", content=file)


def lines(file: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file).splitlines()]


def packed(found: list[dict[str, Any]]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in found))


async def shown(world: World, run: str) -> Any:
    """All that a gateway says of a run, without the places of its entries."""
    detail = (await world.http.get(f"/v1/runs/{run}", params={"full": True})).json()
    events = [(one.name, one.data | {"seq": 0}) for one in await world.read(run)]
    return detail, events


async def test_a_run_is_the_same_elsewhere(world: World, other: World) -> None:
    run = new_run()
    blob = await story(world, run)
    before = await shown(world, run)
    answer = await imported(other, await exported(world, run))
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"id": run, "runs": 2, "entries": 7}
    assert answer.headers["location"] == f"/v1/runs/{run}"
    assert await shown(other, run) == before
    assert (await other.listed(run, state="success"))["state"] == "success"
    assert await other.blobs.get(blob) == await world.blobs.get(blob)
    # Its journals are read by their back-pointers, as an agent reads them, and from the beginning.
    for name in (run, call_id(run, 1, 0)):
        here, there = await world.journal.read(run, name), await other.journal.read(run, name)
        assert [one.entry.n for one in here] == [one.entry.n for one in there]
        assert fold((o.entry for o in here), name, run) == fold((o.entry for o in there), name, run)
    everything = [one.entry for one in await world.history.read_tree(run)]
    copies = [one.entry for one in await other.history.read_tree(run)]
    assert [msgspec.structs.replace(one, prev=[]) for one in everything] == [
        msgspec.structs.replace(one, prev=[]) for one in copies
    ]


async def test_what_was_erased_may_come_back(world: World) -> None:
    run = new_run()
    await story(world, run)
    before, file = await shown(world, run), await exported(world, run)
    assert (await imported(world, file)).json()["code"] == "run-exists"
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert (await imported(world, file)).status_code == 201
    assert await shown(world, run) == before
    assert (await imported(world, file)).status_code == 409
    # And may go again.
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert (await world.http.get(f"/v1/runs/{run}")).status_code == 404


async def test_a_run_that_goes_on_is_not_exported(world: World) -> None:
    run = new_run()
    root, below = world.scribe(run), world.scribe(call_id(run, 1, 0), "helper", run)
    await root.write(root.accepted())
    await below.write(below.accepted())
    await world.listed(run)
    for _ in range(2):
        answer = await world.http.get(f"/v1/runs/{run}/export")
        assert (answer.status_code, answer.json()["code"]) == (409, "run-not-ended")
        if root.entries == 1:
            await root.write(FINISHED)
    answer = await world.http.get(f"/v1/runs/{call_id(run, 1, 0)}/export")
    assert answer.status_code == 422
    assert f"export {run}" in answer.json()["detail"]
    assert (await world.http.get(f"/v1/runs/{new_run()}/export")).status_code == 404


async def test_an_import_that_was_cut_short_is_completed_by_the_same_file(world: World, other: World) -> None:
    run = new_run()
    await story(world, run)
    file = await exported(world, run)
    entries = [line for line in lines(file) if line.get("line") == "entry"]
    # As far as an importer came that was killed: the first entry of the root, and that of the child.
    for line in entries[:2]:
        entry = line["entry"]
        subject = other.topology.journal(run, entry["run"])
        await jetstream.append(other.nc, subject, json.dumps(entry).encode(), expect=0)
    assert (await other.http.get(f"/v1/runs/{run}")).json()["state"] == "running"
    answer = await imported(other, file)
    assert answer.status_code == 201, answer.text
    assert await shown(other, run) == await shown(world, run)
    found = await other.history.read_tree(run)
    assert len(found) == len(entries)


async def test_another_run_with_the_same_id_is_left_alone(world: World, other: World) -> None:
    run = new_run()
    await story(world, run)
    file = await exported(world, run)
    await other.ended_run(run)
    before = await shown(other, run)
    answer = await imported(other, file)
    assert (answer.status_code, answer.json()["code"]) == (409, "run-exists")
    assert await shown(other, run) == before


Change = Callable[[list[dict[str, Any]]], None]


def header(**fields: Any) -> Change:
    return lambda found: found[0].update(fields)


def of_kind(kind: str, change: Callable[[dict[str, Any]], None], which: int = 0) -> Change:
    return lambda found: change([line for line in found if line.get("line") == kind][which])


def without(kind: str, which: int = 0) -> Change:
    return lambda found: found.remove([line for line in found if line.get("line") == kind][which])


BAD: list[tuple[Change, str]] = [
    (header(v=VERSION + 1), "newer than version 1"),
    (header(format="tar"), "no exported run"),
    (header(tree="a.b"), "not the id of a run"),
    (header(tree="other"), "does not belong to run other"),
    (header(entries=99), "the header counts other"),
    (of_kind("blob", lambda line: line.update(data="QUFB")), "another than its name says"),
    (of_kind("blob", lambda line: line.update(part=7)), "out of its order"),
    (without("blob", 1), "out of its order"),
    (without("entry", 1), "entry 1 of run"),
    (without("entry", 2), "entry 2 of run"),
    (without("end"), "its end is missing"),
    (of_kind("end", lambda line: line.update(entries=3)), "other lines than there are"),
    (lambda found: found.append(found[1]), "behind the end"),
    (of_kind("entry", lambda line: line["entry"].update(v=99)), "schema version 99 is newer"),
    (of_kind("entry", lambda line: line["entry"].update(at="now")), "line "),
    (of_kind("entry", lambda line: line["entry"].update(prev="gA"), 2), "predecessors"),
    (of_kind("entry", lambda line: line["entry"].update(run="x.y")), "does not belong"),
    (of_kind("entry", lambda line: line.update(line="nonsense")), "not what it should be"),
]


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return {}


@pytest.fixture
async def file(world: World, kept: dict[str, Any]) -> bytes:
    """An exported run, the same for all tests of this module."""
    if "file" not in kept:
        run = new_run()
        await story(world, run)
        kept["file"], kept["run"] = await exported(world, run), run
    found: bytes = kept["file"]
    return found


@pytest.mark.parametrize(("change", "why"), BAD, ids=[f"{n}-{why}" for n, (_, why) in enumerate(BAD)])
async def test_a_bad_file_is_refused_with_one_line_and_changes_nothing(
    file: bytes, kept: dict[str, Any], other: World, change: Change, why: str
) -> None:
    found = lines(file)
    change(found)
    await refused(other, packed(found), why)
    assert await left_of(other, kept["run"]) == []


@pytest.mark.parametrize(
    ("invalidate", "why"),
    [
        (lambda file: file[: len(file) // 2], "line "),
        (lambda file: file[:100] + bytes(100) + file[200:], "copy it again"),
        (lambda file: b"", "it is empty"),
        (lambda file: b"GIF89a", "no exported run"),
        (lambda file: gzip.compress(b"hello\n"), "no exported run"),
        (lambda file: gzip.compress(b"[1]\n"), "no exported run"),
        (lambda file: gzip.compress(gzip.decompress(file)[:-40]), "line "),
    ],
)
async def test_a_spoilt_file_is_refused(
    file: bytes, kept: dict[str, Any], other: World, invalidate: Callable[[bytes], bytes], why: str
) -> None:
    await refused(other, invalidate(file), why)
    assert await left_of(other, kept["run"]) == []


async def refused(world: World, file: bytes, why: str) -> None:
    answer = await imported(world, file)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-run-file"), answer.text
    detail = answer.json()["detail"]
    assert why in detail
    assert "\n" not in detail
    assert len(detail) < 500


async def test_a_run_that_has_not_ended_is_not_imported(file: bytes, other: World) -> None:
    found = lines(file)
    for line in found:
        if line.get("line") == "entry":
            line["entry"]["events"] = [e for e in line["entry"]["events"] if e["type"] != "run.finished"]
    await refused(other, packed(found), "has not ended")


async def test_a_blob_that_is_gone_is_said_to_be_missing(world: World, other: World) -> None:
    run = new_run()
    blob = await story(world, run)
    await world.blobs.remove(blob)
    file = await exported(world, run)
    assert {"line": "missing", "ref": blob} in lines(file)
    assert (await imported(other, file)).status_code == 201

    async def known() -> bool:
        return (await other.http.get(f"/v1/runs/{run}")).status_code == 200

    assert await until(known)


async def test_nothing_is_left_on_the_gateway(file: bytes, other: World, scratch: Path) -> None:
    """The temporary messages of an import are gone when it is over."""
    await imported(other, file)
    await imported(other, file[:1000])
    assert os.listdir(scratch) == []


def tampered(file: bytes, old: bytes, new: bytes) -> bytes:
    """The file with a part of an entry replaced by another of the same form."""
    text = gzip.decompress(file)
    assert old in text
    return gzip.compress(text.replace(old, new))


def without_journal(file: bytes, run: str) -> bytes:
    """The file without a member's journal, its counts put right."""
    text = gzip.decompress(file).splitlines(keepends=True)
    kept_lines = [line for line in text if f'"run":"{run}","agent"'.encode() not in line]
    gone = len(text) - len(kept_lines)
    assert gone
    entries = json.loads(text[0])["entries"]
    kept_lines[0] = (
        kept_lines[0]
        .replace(f'"entries":{entries}'.encode(), f'"entries":{entries - gone}'.encode())
        .replace(b'"runs":2', b'"runs":1')
    )
    kept_lines[-1] = kept_lines[-1].replace(f'"entries":{entries}'.encode(), f'"entries":{entries - gone}'.encode())
    return gzip.compress(b"".join(kept_lines))


@pytest.mark.parametrize("what", [(b'"task":"Go."', b'"task":"No."'), (b'"task":"Help."', b'"task":"Hulp."')])
async def test_a_run_whose_chain_is_broken_is_imported_only_unverified(
    world: World, other: World, what: tuple[bytes, bytes]
) -> None:
    run = new_run()
    await story(world, run)
    file = tampered(await exported(world, run), *what)
    refused_ = await imported(other, file)
    assert (refused_.status_code, refused_.json()["code"]) == (422, "broken-chain"), refused_.text
    changed = run if b"Go" in what[0] else call_id(run, 1, 0)
    assert {"run": changed, "n": 1} in refused_.json()["broken"]
    assert await left_of(other, run) == []
    taken = await other.http.post("/v1/runs/import", params={"unverified": "true"}, content=file)
    assert taken.status_code == 201, taken.text
    verified = (await other.http.get(f"/v1/runs/{run}/verify")).json()
    assert [(one["run"], one["n"]) for one in verified["broken"]] == [
        (one["run"], one["n"]) for one in refused_.json()["broken"]
    ], "both are one check"


async def test_a_member_whose_answer_is_there_and_whose_journal_is_not_breaks_the_chain(
    world: World, other: World
) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, below = world.scribe(run), world.scribe(child, "helper", run)
    await root.write(root.accepted(), CALLED)
    await below.write(below.accepted("Help."), FINISHED)
    await root.write(DelegateFinished(call=child, member="helper", state="success", output="x"), FINISHED)
    await world.listed(run, state="success")
    file = await exported(world, run)
    answer = await imported(other, without_journal(file, child))
    assert (answer.status_code, answer.json()["code"]) == (422, "broken-chain"), answer.text
    assert answer.json()["broken"] == [{"run": run, "n": 2}]
    assert (await imported(other, file)).status_code == 201
