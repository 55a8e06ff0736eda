"""A full server, a limit for new runs, an agent that does not get on: things slow down, and nothing is lost."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.messages import Task
from cadre_gateway.starting.admission import MAX_FILL_SHARE
from harness.command import commands_of, only_line
from harness.full_server import FullServer, fill
from harness.patience import eventually
from harness.stack import Gateway, Stack
from harness.texts import holds

SCRIPT = Path(__file__).parent / "frail" / "frail.py"
MB = 1024 * 1024
ROOM = 6 * MB


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    one = Stack(tmp_path)
    one.nats = FullServer(tmp_path, ROOM, port=one.nats.port)
    with one as stack:
        yield stack


async def fill_up(stack: Stack) -> None:
    async with stack.platform() as platform:
        await fill(platform.nc, platform.topology)


async def send(stack: Stack, agent: str, count: int) -> list[str]:
    """Tasks that bypass the gateway, which knows after a while that an agent gives no sign of life."""
    runs = [uuid4().hex for _ in range(count)]
    async with stack.platform() as platform:
        for run in runs:
            task = Task(id=f"{run}:task", tree=run, run=run, at=time.time(), agent=agent, task="be well")
            await platform.bus.send(task, "gateway")
    return runs


def refused(gateway: Gateway) -> str | None:
    """Return what a new run is sent when there is no room; None when there is."""
    answer = gateway.request("POST", "/v1/runs", json={"agent": "frail", "task": "be well"})
    if answer.status_code == 202:
        return None
    assert (answer.status_code, answer.json()["code"]) == (429, "capacity"), answer.text
    assert int(answer.headers["retry-after"]) > 0
    detail: str = answer.json()["detail"]
    return detail


def test_a_full_server_refuses_new_runs_and_ends_the_others_when_there_is_room(stack: Stack) -> None:
    gateway = stack.gateway()
    frail = stack.script(SCRIPT)
    file = stack.folder / "go"
    runs = [gateway.submit("frail", f"wait {file}") for _ in range(20)]
    for run in runs:
        gateway.wait_for(run, "model.called")
    asyncio.run(fill_up(stack))
    # At first the server itself may refuse it: the gateway looks at the room there is every few seconds.
    eventually(lambda: f"{MAX_FILL_SHARE:.0%}" in (refused(gateway) or ""), what="a new run is refused")
    said = only_line(commands_of(stack, stack.folder)("run", "frail", "be well"), 1)
    assert holds(said, f"{MAX_FILL_SHARE:.0%}", "cadre runs remove")

    file.touch()
    eventually(lambda: "no room left" in frail.log.read_text(), what="the agent finds no room")
    assert {gateway.run(run)["state"] for run in runs} == {"running"}
    assert isinstance(stack.nats, FullServer)
    stack.nats.raise_limit(4 * ROOM)
    for run in runs:
        assert gateway.finished(run)["output"] == "well"
    assert frail.is_running
    eventually(lambda: refused(gateway) is None, what="a new run is begun")


def test_a_limit_per_shard_leaves_room_for_the_runs_in_flight(stack: Stack) -> None:
    gateway = Gateway(stack.add("gateway", "cadre_gateway", CADRE_MAX_BYTES=str(MB)))
    stack.script(SCRIPT)
    file = stack.folder / "go"
    run = gateway.submit("frail", f"wait {file}")

    async def store(shards: range) -> None:
        async with stack.platform() as platform:
            prefix = platform.topology.prefix
            for shard in shards:
                for n in range(10):
                    await jetstream.append(platform.nc, f"{prefix}.code.{shard}.nobody.t.t{n}", b"x" * 100_000)

    asyncio.run(store(range(2)))
    # What is known of a shard may be a second old, and runs go to either.
    eventually(
        lambda: all("of 1,048,576 bytes" in (refused(gateway) or "") for _ in range(8)),
        what="new runs are refused",
    )
    file.touch()
    assert gateway.finished(run)["output"] == "well", "the limit is for new runs"

    async def make_room() -> None:
        async with stack.platform() as platform:
            for shard in range(2):
                stream = platform.topology.stream(shard)
                await jetstream.purge(platform.nc, stream, f"{platform.topology.prefix}.code.{shard}.>")

    asyncio.run(make_room())
    eventually(lambda: refused(gateway) is None, what="a new run is begun")


def test_an_agent_that_hangs_hinders_nobody_else(stack: Stack) -> None:
    gateway = stack.gateway()
    hanging, brisk = stack.add("hanging", SCRIPT, "hanging"), stack.add("brisk", SCRIPT, "brisk")
    hanging.signal(signal.SIGSTOP)
    waiting = asyncio.run(send(stack, "hanging", 300))
    for run in [gateway.submit("brisk", "be well") for _ in range(50)]:
        assert gateway.finished(run)["output"] == "well"
    hanging.signal(signal.SIGCONT)
    for run in waiting:
        assert gateway.finished(run)["output"] == "well"
    assert brisk.is_running
