"""The files that a run begins with: those of the run it was forked from, or of the turn before in its session."""

import asyncio
import time
from typing import Any

import httpx2
import msgspec
import pytest

from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.workspace_store import MAX_FILES, WorkspaceStore
from cadre.engine.fold import fold
from cadre.errors import BlobMissing
from cadre.journal.events import (
    ModelAnswered,
    ModelCalled,
    RequestedCall,
    RunAccepted,
    StepFinished,
    ToolAnswered,
)
from cadre.journal.events import ToolCalled as Called
from cadre.loop.fork import prefix_of
from cadre.protocol.files import carried_over
from cadre.protocol.messages import Erased
from cadre.protocol.topology import call_id, run_id_of
from harness.patience import until
from integration.gateway_world import FINISHED, Scribe, World, new_run
from integration.remains import gone


def workspace(world: World, tree: str, call: str) -> WorkspaceStore:
    index = NatsFileIndex(world.nc, world.topology)
    return WorkspaceStore(index, world.blobs, tree=tree, call=call, by="write_file", most_bytes=10_000)


async def contents(world: World, run: str) -> dict[str, str]:
    """Return what the run's workspace holds, by path."""
    listed = (await world.http.get(f"/v1/runs/{run}/files")).json()["files"]
    paths = [one["path"] for one in listed]
    answers = [await world.http.get(f"/v1/runs/{run}/files/{path}") for path in paths]
    assert all(answer.status_code == 200 for answer in answers), [answer.text for answer in answers]
    return dict(zip(paths, (answer.text for answer in answers), strict=True))


def asked(step: int) -> ModelCalled:
    return ModelCalled(purpose="act", step=step, attempt=1, cause="c")


async def step(world: World, scribe: Scribe, number: int, files: dict[str, str]) -> None:
    """One step of a run whose model has been asked: it writes files, and the model is asked for the next."""
    call = call_id(scribe.run, number, 0)
    said = [RequestedCall("write_file", {})]
    await scribe.write(
        ModelAnswered(purpose="act", step=number, attempt=1, content="", calls=said),
        Called(call=call, tool="write_file", arguments={}),
    )
    for path, text in files.items():
        await workspace(world, scribe.run, call).write(path, text)
    answered = ToolAnswered(call=call, tool="write_file", output="written")
    await scribe.write(answered, StepFinished(step=number), asked(number + 1))


async def written(world: World) -> str:
    """A run of three steps that has ended: each has written files, and the second one a file of the first again."""
    run = new_run()
    mark = run[:6]
    await workspace(world, run, "task").write("given", f"given {mark}")
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), asked(1))
    await step(world, scribe, 1, {"a": f"one {mark}"})
    await step(world, scribe, 2, {"a": f"two {mark}", "b": f"b {mark}"})
    await step(world, scribe, 3, {"a": f"three {mark}", "c": f"c {mark}"})
    await scribe.write(FINISHED)
    await world.listed(run, state="success")
    return run


async def fork(world: World, run: str, at: int, key: str | None = None) -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await world.http.post(f"/v1/runs/{run}/fork", json={"at": at}, headers=headers)
    assert answer.status_code == 202, answer.text
    forked: dict[str, Any] = answer.json()
    return forked


async def turn(world: World, session: str, key: str | None = None, **fields: Any) -> httpx2.Response:
    body = {"agent": "boss", "task": "x", "session": session, **fields}
    return await world.http.post("/v1/runs", json=body, headers={"Idempotency-Key": key} if key else {})


async def ended_turn(world: World, session: str, files: dict[str, str], **fields: Any) -> str:
    """A turn that has written files."""
    answer = await turn(world, session, **fields)
    assert answer.status_code == 202, answer.text
    run: str = answer.json()["id"]
    for path, text in files.items():
        await workspace(world, run, call_id(run, 1, 0)).write(path, text)
    await world.ended_run(run, session=session)
    return run


# --- forks


async def test_a_fork_begins_with_the_files_of_its_step(world: World) -> None:
    run = await written(world)
    mark = run[:6]
    given = {"given": f"given {mark}"}
    for at, there in (
        (1, given),
        (2, given | {"a": f"one {mark}"}),
        (3, given | {"a": f"two {mark}", "b": f"b {mark}"}),
    ):
        forked = await fork(world, run, at)
        assert "later_files" not in forked
        assert await contents(world, forked["id"]) == there
    [file] = [
        one for one in (await world.http.get(f"/v1/runs/{forked['id']}/files")).json()["files"] if one["path"] == "a"
    ]
    assert (file["version"], file["by"]) == (2, "write_file"), "as the conversation knows it"


async def test_a_fork_at_a_step_of_its_own_prefix_begins_with_that_steps_files(world: World) -> None:
    run = await written(world)
    mark = run[:6]
    first = (await fork(world, run, 3))["id"]
    task = await world.history.task(first, first)
    assert task is not None
    assert task.forks is not None
    past = fold([one.entry for one in await world.journal.read(run, run)], run, run)
    scribe = world.scribe(first)
    spec = scribe.accepted().spec
    await scribe.write(
        RunAccepted(task=task, spec=spec, decided_by="tool_calling", prefix=prefix_of(past, task.forks).steps),
        asked(3),
    )
    await step(world, scribe, 3, {"a": "its own"})
    again = (await fork(world, first, 2))["id"]
    assert await contents(world, again) == {"given": f"given {mark}", "a": f"one {mark}"}
    later = (await fork(world, first, 4))["id"]
    assert (await contents(world, later))["a"] == "its own"
    # Without the first run only what was carried_over from it is known.
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    forked = await fork(world, first, 2)
    assert forked["later_files"] == ["a", "b", "given"]
    assert (await contents(world, forked["id"]))["a"] == f"two {mark}"


async def test_a_fork_of_an_imported_run_tells_that_its_files_are_of_its_end(world: World) -> None:
    run = await written(world)
    exported = (await world.http.get(f"/v1/runs/{run}/export")).content
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert (await world.http.post("/v1/runs/import", content=exported)).status_code == 201
    forked = await fork(world, run, 2)
    assert forked["later_files"] == ["a", "b", "c", "given"]
    assert (await contents(world, forked["id"]))["a"] == f"three {run[:6]}"


# --- sessions


async def test_the_next_turn_begins_with_the_files_of_the_one_before(world: World) -> None:
    session = new_run()
    first = await ended_turn(world, session, {"report.md": "draft", "old": "x"})
    await workspace(world, first, call_id(first, 2, 0)).delete("old")
    second = await ended_turn(world, session, {"report.md": "final"})
    assert await contents(world, second) == {"report.md": "final"}
    given = {"report.md": "data:text/markdown;base64,bXkgb3du", "new": "data:text/plain;base64,bg=="}
    third = (await turn(world, session, files=given)).json()["id"]
    assert await contents(world, third) == {"report.md": "my own", "new": "n"}, "what is given counts"
    assert await contents(world, first) == {"report.md": "draft"}
    afresh = (await turn(world, session, reset=True)).json()["id"]
    assert await contents(world, afresh) == {}


async def test_bounds_hold_for_what_is_carried_and_given(world: World) -> None:
    session = new_run()
    first = await ended_turn(world, session, {})
    blob = await world.blobs.put(b"x")
    index = NatsFileIndex(world.nc, world.topology)
    await workspace(world, first, "task").write("0", b"x")
    record, _ = await index.read(first, "0") or (None, 0)
    assert record is not None
    for start in range(1, MAX_FILES, 100):
        more = [msgspec.structs.replace(record, path=str(n)) for n in range(start, min(start + 100, MAX_FILES))]
        await asyncio.gather(*(index.write(one, 0) for one in more))
    refused = await turn(world, session, files={"one more": blob})
    assert refused.status_code == 422
    assert f"begin with {MAX_FILES + 1} files" in refused.json()["detail"]
    sessions = NatsSessions(world.nc, world.topology)
    taken, fence = await sessions.read("boss", session, None)
    assert taken is not None
    # Ten seconds later a turn that was never started counts as none.
    await sessions.record("boss", session, None, msgspec.structs.replace(taken, at=1.0), fence)
    key = new_run()
    for _ in range(5):  # each try completes what the one before has carried_over
        answer = await turn(world, session, key)
        if answer.status_code != 503:
            break
    assert answer.status_code == 202, answer.text
    assert len((await world.http.get(f"/v1/runs/{answer.json()['id']}/files")).json()["files"]) == MAX_FILES


# --- erased


async def test_what_was_carried_outlives_the_run_it_came_from(world: World) -> None:
    run = await written(world)
    forks = [(await fork(world, run, at))["id"] for at in (2, 3)]
    # At once: the gateway may not have read yet which blobs the forks name.
    last, _ = await NatsFileIndex(world.nc, world.topology).read(run, "c") or (None, 0)
    assert last is not None
    assert last.ref is not None
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    with pytest.raises(BlobMissing):
        await world.blobs.get(last.ref)
    mark = run[:6]
    assert (await contents(world, forks[0]))["a"] == f"one {mark}"
    assert await contents(world, forks[1]) == {"given": f"given {mark}", "a": f"two {mark}", "b": f"b {mark}"}

    session = new_run()
    before = await ended_turn(world, session, {"report.md": f"of {session}"})
    after = (await turn(world, session)).json()["id"]
    assert (await world.http.delete(f"/v1/runs/{before}")).status_code == 200
    assert await contents(world, after) == {"report.md": f"of {session}"}
    await world.ended_run(after, session=session)
    [file] = (await world.http.get(f"/v1/runs/{after}/files")).json()["files"]
    assert (await world.http.delete(f"/v1/runs/{after}")).status_code == 200
    await gone(world, after, file["ref"])


async def test_a_run_that_is_erased_while_its_files_are_carried_is_begun_without_them(world: World) -> None:
    """The record is there, and this gateway may not have read it yet: then the request is to be sent again."""
    session, key = new_run(), new_run()
    before = await ended_turn(world, session, {"a": f"of {session}"})
    record, _ = await NatsFileIndex(world.nc, world.topology).read(before, "a") or (None, 0)
    assert record is not None
    await NatsFileIndex(world.nc, world.topology).write(carried_over(record, run_id_of("boss", "", key)), 0)
    erasure = NatsErasure(world.nc, world.topology, world.blobs)
    await erasure.record(Erased(id=f"{before}:erased", tree=before, run=before, at=time.time()), 0)

    async def begun() -> str | None:
        answer = await turn(world, session, key)
        assert answer.status_code in (202, 503), answer.text
        return str(answer.json()["id"]) if answer.status_code == 202 else None

    run = await until(begun)
    assert await contents(world, run) == {}


# --- cut short


async def test_a_try_that_was_cut_short_is_completed_by_the_next(world: World) -> None:
    """As a gateway leaves it that died before it published the task."""
    run = await written(world)
    other = await written(world)
    mark = run[:6]
    key = new_run()
    new = run_id_of("boss", "", key)
    index = NatsFileIndex(world.nc, world.topology)
    for source, path in ((run, "given"), (other, "a"), (other, "c")):
        record, _ = await index.read(source, path) or (None, 0)
        assert record is not None
        await index.write(carried_over(record, new), 0)
    assert (await world.http.get(f"/v1/runs/{new}/files")).status_code == 404, "no run has a part of its files"
    forked = await fork(world, run, 3, key)
    assert forked["id"] == new
    there = {"given": f"given {mark}", "a": f"two {mark}", "b": f"b {mark}"}
    assert await contents(world, new) == there
    # It has begun: anyone who asks again changes nothing of what it does.
    await workspace(world, new, call_id(new, 3, 0)).write("a", "its own")
    await workspace(world, new, call_id(new, 3, 1)).delete("b")
    assert (await fork(world, run, 3, key))["id"] == new
    assert await contents(world, new) == {"given": f"given {mark}", "a": "its own"}


async def test_a_request_that_is_sent_several_times_at_once_is_one_run_with_all_files(world: World) -> None:
    session, key = new_run(), new_run()
    files = {f"{n}.txt": f"{n} of {session}" for n in range(40)}
    await ended_turn(world, session, files)
    answers = await asyncio.gather(*(turn(world, session, key) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {202}, [answer.text for answer in answers]
    [run] = {answer.json()["id"] for answer in answers}
    assert await contents(world, run) == files


async def test_a_turn_goes_on_from_another_run_than_the_try_before(world: World) -> None:
    session, key = new_run(), new_run()
    first = await ended_turn(world, session, {"first": "1", "both": "1"})
    new = run_id_of("boss", "", key)
    index = NatsFileIndex(world.nc, world.topology)
    for path in ("first", "both"):
        record, _ = await index.read(first, path) or (None, 0)
        assert record is not None
        await index.write(carried_over(record, new), 0)
    second = await ended_turn(world, session, {"second": "2", "both": "2"}, reset=True)
    sessions = NatsSessions(world.nc, world.topology)
    recorded, _ = await sessions.read("boss", session, None)
    assert recorded is not None
    assert isinstance(recorded, SessionTurn)
    assert recorded.run == second
    answer = await turn(world, session, key)
    assert answer.json()["id"] == new
    assert await contents(world, new) == {"second": "2", "both": "2"}
