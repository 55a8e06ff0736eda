"""Sessions and cancels through a real gateway: what one run means for another."""

import asyncio
from typing import Any

import httpx2

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.delivery.codec import unpack_record
from cadre.journal.events import CancelRequested
from cadre.protocol.messages import Cancel
from cadre.protocol.topology import call_id
from harness.patience import patience
from integration.gateway_world import CALLED, FINISHED, World, new_run

# --- sessions


async def test_a_session_goes_on_from_its_last_run(world: World) -> None:
    session = new_run()

    async def post(**fields: Any) -> httpx2.Response:
        return await world.http.post("/v1/runs", json={"agent": "boss", "task": "x", "session": session, **fields})

    async def continued(answer: httpx2.Response) -> str | None:
        assert answer.status_code == 202, answer.text
        run = answer.json()["id"]
        task = await world.history.task(run, run)
        assert task is not None
        return task.continues

    first = await post()
    assert await continued(first) is None
    busy = await post()
    assert (busy.status_code, busy.json()["code"]) == (409, "session-busy")
    scribe = world.scribe(first.json()["id"])
    await scribe.write(scribe.accepted(session=session), CALLED)
    assert (await post()).status_code == 409
    await scribe.write(FINISHED)

    second = await post()
    assert await continued(second) == first.json()["id"]
    await world.finished_run(second.json()["id"], session=session)
    fresh = await post(reset=True)
    assert await continued(fresh) is None
    await world.finished_run(fresh.json()["id"], session=session)
    assert await continued(await post()) == fresh.json()["id"]


async def test_of_two_turns_at_once_one_is_refused(world: World) -> None:
    session = new_run()
    body = {"agent": "boss", "task": "x", "session": session}
    answers = await asyncio.gather(*(world.http.post("/v1/runs", json=body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409]


async def test_a_turn_that_was_never_started_is_passed_over(world: World) -> None:
    session, before, lost = new_run(), new_run(), new_run()
    await world.finished_run(before, session=session)
    sessions = NatsSessions(world.nc, world.topology)
    # As a gateway leaves it that died long ago between recording the turn and publishing its task.
    await sessions.record("boss", session, None, SessionTurn(run=lost, previous=before, at=1.0), 0)
    answer = await world.http.post("/v1/runs", json={"agent": "boss", "task": "x", "session": session})
    run = answer.json()["id"]
    task = await world.history.task(run, run)
    assert task is not None
    assert task.continues == before
    assert (await sessions.read("boss", session, None)).turn.previous == before  # type: ignore[union-attr]


async def test_a_session_of_the_same_name_is_another_one_for_each_person(world: World) -> None:
    """No one goes on with another person's memory, takes the name away from them, or learns that it is taken."""
    session = new_run()

    async def turn(user: str | None) -> tuple[str, str | None]:
        """The run, and the one that it goes on from."""
        asked = {"agent": "boss", "task": "x", "session": session, "user": user}
        answer = await world.http.post("/v1/runs", json=asked)
        assert answer.status_code == 202, answer.text
        run = answer.json()["id"]
        task = await world.history.task(run, run)
        assert task is not None
        await world.finished_run(run, session=session)
        return run, task.continues

    people = ("ann", "bo", None)
    first = {user: await turn(user) for user in people}
    assert [continued for _, continued in first.values()] == [None, None, None]
    for user in people:
        assert (await turn(user))[1] == first[user][0], user


# --- cancelling


async def test_a_cancel_reaches_the_inbox_of_the_runs_agent(world: World) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, member = world.scribe(run), world.scribe(child, "helper", run)
    await root.write(root.accepted())
    await member.write(member.accepted())
    inbox = await world.nc.subscribe(world.topology.inbox("helper", "gateway", run, child))
    interrupts = await world.nc.subscribe(world.topology.interrupt(run))
    await settled(world.nc)

    answer = await world.http.post(f"/v1/runs/{child}/cancel", json={"reason": "enough"})
    assert (answer.status_code, answer.json()) == (202, {"id": child, "state": "running"})
    record = await unpack_record((await inbox.next_msg(timeout=patience())).data, world.blobs)
    assert record.id.startswith(f"{child}:cancel:")
    assert isinstance(record, Cancel)
    assert (record.tree, record.run, record.reason, record.sender) == (run, child, "enough", "gateway")
    await interrupts.next_msg(timeout=patience())

    wrong = await world.http.post(f"/v1/runs/{child}/cancel", json={"raeson": "enough"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-request")
    await root.write(FINISHED)
    await world.listed(run, state="success")
    ended = await world.http.post(f"/v1/runs/{run}/cancel")
    assert (ended.status_code, ended.json()) == (200, {"id": run, "state": "success"})


async def test_a_cancel_with_the_same_key_is_one_cancel(world: World) -> None:
    run = new_run()
    root = world.scribe(run)
    await root.write(root.accepted())
    inbox = await world.nc.subscribe(world.topology.inbox("boss", "gateway", run, run))
    await settled(world.nc)

    async def cancel(key: str, **body: Any) -> httpx2.Response:
        headers = {"Idempotency-Key": key}
        return await world.http.post(f"/v1/runs/{run}/cancel", json=body, headers=headers)

    async def sent() -> Cancel:
        record = await unpack_record((await inbox.next_msg(timeout=patience())).data, world.blobs)
        assert isinstance(record, Cancel)
        return record

    assert (await cancel("k", reason="enough")).status_code == 202
    first = await sent()
    assert (first.reason, first.now) == ("enough", False)
    assert (await cancel("k", reason="enough")).status_code == 202
    assert (await sent()).id == first.id, "the server drops the second, and so does the run"

    root.cause = first.id
    await root.write(CancelRequested(reason="enough", sender="gateway"))
    assert (await cancel("k", reason="enough")).status_code == 202
    for other in ({"reason": "another"}, {"reason": "enough", "now": True}):
        refused = await cancel("k", **other)
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency-key-reused")
    assert (await cancel("k2", now=True)).status_code == 202
    at_once = await sent()
    assert at_once.now
    assert at_once.id != first.id
