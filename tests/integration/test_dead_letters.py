"""Dead letters as the gateway and the command line tell of them, over messages that a real queue gave up."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import HEADERS, encode
from cadre.journal import events as ev
from cadre.protocol.messages import Spilled, Task, ToolResult
from cadre.protocol.topology import call_id
from cadre.settings import child_environment
from harness.command import Commands
from harness.patience import patience, until
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run

AGENT = "undertaker"


class Grave:
    """An agent's queues whose handler gives messages up, or hands them to the test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reason = "nobody can read it"
        self.buries = True
        self.arrived: asyncio.Queue[NatsDelivery] = asyncio.Queue()
        topology = world.topology
        self._queues = [
            Queue(
                world.nc,
                topology.stream(shard),
                topology.agent_consumer(AGENT),
                topology.inbox_filter(shard, AGENT),
                self._handle,
                limit=8,
            )
            for shard in range(topology.shards)
        ]

    async def start(self) -> None:
        for queue in self._queues:
            await queue.start()

    async def stop(self) -> None:
        for queue in self._queues:
            await queue.drain(0)

    async def _handle(self, delivery: NatsDelivery) -> None:
        if self.buries:
            await delivery.term(self.reason)
        else:
            await delivery.ack()
            self.arrived.put_nowait(delivery)

    async def bury(self, run: str, data: bytes) -> dict[str, Any]:
        """Sends `data` to the run and waits for the letter that comes of it."""
        topology = self.world.topology
        subject = topology.inbox(AGENT, "gateway", run.partition("_")[0], run)
        await jetstream.append(
            self.world.nc,
            subject,
            data,
            headers={**HEADERS, "traceparent": "00-x", jetstream.MESSAGE_ID: f"{run}:{len(data)}"},
        )

        async def ask() -> dict[str, Any] | None:
            return next((one for one in await letters(self.world) if one["run"] == run), None)

        return await until(ask)


@pytest.fixture
async def grave(world: World) -> AsyncIterator[Grave]:
    one = Grave(world)
    await one.start()
    yield one
    await one.stop()


async def letters(world: World, **query: Any) -> list[dict[str, Any]]:
    answer = await world.http.get("/v1/dead-letters", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["dead_letters"]
    return found


def a_task(run: str) -> bytes:
    return encode(Task(id=f"{run}:task", tree=run, run=run, at=1.5, agent=AGENT, task="Rest."))


async def problem(world: World, method: str, path: str) -> tuple[int, str]:
    answer = await world.http.request(method, f"/v1/dead-letters/{path}")
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("number", ["0", "-1", "9" * 23])
async def test_a_number_that_no_letter_has_is_refused(world: World, method: str, number: str) -> None:
    assert await problem(world, method, number) == (422, "invalid-request")


async def test_a_letter_tells_what_is_known(world: World, grave: Grave) -> None:
    run = new_run()
    began = time.time()
    letter = await grave.bury(run, a_task(run))
    assert began - 1 < letter.pop("at") < time.time() + 1
    identity = letter.pop("id")
    assert letter == {
        "queue": f"agent/{AGENT}",
        "reason": "nobody can read it",
        "deliveries": 1,
        "gone": False,
        "kind": "task",
        "tree": run,
        "run": run,
        "call": None,
        "sender": "gateway",
        "size": len(a_task(run)),
    }
    shown = (await world.http.get(f"/v1/dead-letters/{identity}")).json()
    assert (shown["encoding"], shown["payload"]["task"]) == ("json", "Rest.")
    assert shown["subject"].endswith(f".{AGENT}.gateway.{run}.{run}")


@pytest.mark.parametrize(
    ("data", "encoding", "payload"),
    [
        (b"not json", "text", "not json"),
        (b"\xff\x00\x01", "hex", "ff0001"),
        (b'{"odd": 1}', "json", {"odd": 1}),
    ],
)
async def test_what_cannot_be_read_is_shown_as_it_is(
    world: World, grave: Grave, data: bytes, encoding: str, payload: Any
) -> None:
    letter = await grave.bury(new_run(), data)
    shown = (await world.http.get(f"/v1/dead-letters/{letter['id']}")).json()
    assert (shown["kind"], shown["encoding"], shown["payload"]) == ("unreadable", encoding, payload)


async def test_a_large_message_is_shown_whole_and_without_its_blob_as_a_reference(world: World, grave: Grave) -> None:
    run, lost = new_run(), new_run()
    ref = await world.blobs.put(b'{"whole": true}')
    spilled = Spilled(id="x", tree=run, run=run, at=0.0, ref=ref, size=15)
    letter = await grave.bury(run, encode(spilled))
    assert letter["kind"] == "spilled"
    assert (await world.http.get(f"/v1/dead-letters/{letter['id']}")).json()["payload"] == {"whole": True}
    gone = Spilled(id="x", tree=lost, run=lost, at=0.0, ref="blob:" + "0" * 64, size=1)
    letter = await grave.bury(lost, encode(gone))
    assert (await world.http.get(f"/v1/dead-letters/{letter['id']}")).json()["payload"]["type"] == "spilled"


async def test_retried_it_is_delivered_again_though_its_id_was_used(world: World, grave: Grave) -> None:
    run = new_run()
    letter = await grave.bury(run, a_task(run))
    grave.buries = False
    answer = await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")
    assert (answer.status_code, answer.json()) == (200, {"id": letter["id"], "done": "retried", "run": run})
    again = await asyncio.wait_for(grave.arrived.get(), patience())
    assert (again.data, again.retried, again.deliveries) == (a_task(run), True, 1)
    for method, path in (
        ("POST", f"{letter['id']}/retry"),
        ("GET", str(letter["id"])),
        ("DELETE", str(letter["id"])),
    ):
        assert await problem(world, method, path) == (404, "unknown-dead-letter")


async def test_dropped_it_is_gone_with_its_message(world: World, grave: Grave) -> None:
    run = new_run()
    letter = await grave.bury(run, a_task(run))
    answer = await world.http.delete(f"/v1/dead-letters/{letter['id']}")
    assert (answer.status_code, answer.json()["done"]) == (200, "dropped")
    assert letter["id"] not in [one["id"] for one in await letters(world)]
    held = await jetstream.last(
        world.nc, world.topology.stream_of(run), world.topology.inbox(AGENT, "gateway", run, run)
    )
    assert held is None
    assert await problem(world, "DELETE", str(letter["id"])) == (404, "unknown-dead-letter")


async def test_a_letter_whose_message_was_removed_says_so(world: World, grave: Grave) -> None:
    run = new_run()
    letter = await grave.bury(run, a_task(run))
    stream = world.topology.stream_of(run)
    await jetstream.api(world.nc, f"STREAM.PURGE.{stream}", {"filter": f"{world.topology.prefix}.in.*.*.*.{run}.>"})
    shown = (await world.http.get(f"/v1/dead-letters/{letter['id']}")).json()
    assert (shown["gone"], shown["run"], shown["queue"]) == (True, None, f"agent/{AGENT}")
    assert await problem(world, "POST", f"{letter['id']}/retry") == (409, "message-gone")
    assert (await world.http.delete(f"/v1/dead-letters/{letter['id']}")).status_code == 200


async def test_what_nobody_waits_for_is_not_retried(world: World, grave: Grave) -> None:
    """A run that is over; a task whose manager was informed and went on; but not a task that is still awaited."""
    over, manager, waits = new_run(), new_run(), new_run()
    await world.finished_run(over, AGENT)
    letter = await grave.bury(over, b"late")
    assert await problem(world, "POST", f"{letter['id']}/retry") == (409, "retry-useless")

    scribe = world.scribe(manager)
    child = call_id(manager, 1, 0)
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(FINISHED)
    letter = await grave.bury(child, b"unreadable")
    assert await problem(world, "POST", f"{letter['id']}/retry") == (409, "retry-useless")

    scribe = world.scribe(waits)
    child = call_id(waits, 1, 0)
    answered = ev.ModelAnswered(purpose="act", step=1, attempt=1, content="")
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(answered, ev.DelegateStarted(call=child, member=AGENT, task="Help."))
    letter = await grave.bury(child, b"unreadable")
    assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200
    result = ToolResult(id="r", tree=waits, run=waits, at=0.0, call=child, tool="t")
    letter = await grave.bury(waits, encode(result))
    assert letter["kind"] == "tool_result"
    assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200


async def test_pages_of_letters_with_gaps(world: World, grave: Grave) -> None:
    runs = [new_run() for _ in range(7)]
    made = [(await grave.bury(run, a_task(run)))["id"] for run in runs]
    assert made == sorted(made)
    for letter in made[2:5]:
        await world.http.delete(f"/v1/dead-letters/{letter}")
    kept = [made[6], made[5], made[1], made[0]]
    first = (await world.http.get("/v1/dead-letters", params={"limit": 3})).json()
    assert ([one["id"] for one in first["dead_letters"]], first["next"]) == (kept[:3], kept[2])
    rest = await letters(world, limit=3, before=first["next"])
    assert rest[0]["id"] == kept[3]
    for query in ({"limit": 0}, {"before": 0}, {"limits": 1}):
        answer = await world.http.get("/v1/dead-letters", params=query)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


async def test_the_command_line(gateway: GatewayProcess, world: World, grave: Grave, tmp_path: Path) -> None:
    cadre = Commands(tmp_path, child_environment(CADRE_GATEWAY_URL=gateway.url, NO_COLOR="1"))
    await asyncio.to_thread(cadre, "dead", "drop", "--all")
    empty = await asyncio.to_thread(cadre, "dead", "list")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "no dead letters\n")

    kept, dropped, over = new_run(), new_run(), new_run()
    await world.finished_run(over, AGENT)
    ids = [str((await grave.bury(run, a_task(run)))["id"]) for run in (kept, dropped, over)]
    listed = await asyncio.to_thread(cadre, "dead", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["ID", *reversed(ids)]
    assert f"agent/{AGENT}" in listed.stdout
    as_json = json.loads((await asyncio.to_thread(cadre, "dead", "list", "-o", "json")).stdout)
    assert [str(letter["id"]) for letter in as_json] == list(reversed(ids))
    shown = await asyncio.to_thread(cadre, "dead", "show", ids[0])
    assert f"run      {kept}" in shown.stdout
    assert '"task": "Rest."' in shown.stdout

    grave.buries = False
    retried = await asyncio.to_thread(cadre, "dead", "retry", ids[0])
    assert (retried.returncode, retried.stdout) == (0, f"{ids[0]} retried, run {kept}\n")
    assert (await asyncio.wait_for(grave.arrived.get(), patience())).data == a_task(kept)
    again = await asyncio.to_thread(cadre, "dead", "retry", ids[0])
    assert again.returncode == 4
    assert ids[0] in again.stderr
    rest = await asyncio.to_thread(cadre, "dead", "retry", "--all")
    assert (rest.returncode, rest.stdout) == (1, f"{ids[1]} retried, run {dropped}\n")
    assert f"run {over} is over (success)" in rest.stderr
    done = await asyncio.to_thread(cadre, "dead", "drop", ids[2], "-o", "json")
    assert json.loads(done.stdout) == [{"id": int(ids[2]), "done": "dropped", "run": over}]
    wrong = await asyncio.to_thread(cadre, "dead", "drop")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
