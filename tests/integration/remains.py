"""Remains of a run in a deployment, looked for in every stream and bucket."""

import base64
import json
import time
import zlib
from collections.abc import AsyncIterator

from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.adapters.nats.streams import jetstream
from cadre.journal.events import RunAccepted, ToolAnswered
from cadre.protocol.messages import EffectClaim, Task, TimerFired, ToolCall, ToolResult
from cadre.protocol.topology import Subject, call_id, result_id, task_id
from integration.gateway_world import CALLED, FINISHED, World

CANARY = "yellow-bird-in-the-mine"


async def streams_of(world: World) -> list[str]:
    answer = await jetstream.api(world.nc, "STREAM.NAMES")
    prefix = world.topology.prefix
    return [name for name in answer["streams"] if prefix in name.lower()]


async def everything(world: World) -> AsyncIterator[tuple[str, bytes, bool]]:
    """Each message of the deployment, its subject and its bytes, and whether it is a list that was unpacked."""
    for stream in await streams_of(world):
        state = (await jetstream.api(world.nc, f"STREAM.INFO.{stream}"))["state"]
        for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1):
            found = await jetstream.read(world.nc, stream, seq)
            if found is not None:
                held, headers = found
                data = held.data
                is_list = data[:1] == b"\x78"
                if is_list:
                    data = zlib.decompressobj().decompress(data)
                yield held.subject, data + json.dumps(headers).encode(), is_list


async def left_of(world: World, tree: str, *blobs: str) -> list[str]:
    """Subjects of the messages that tell of a tree: by its id, by what it was about, by its blobs.

    That it was erased is on record, and a gateway's saved list and the audit trail remember that as well: by the id
    alone.
    """
    names = [blob.removeprefix("blob:") for blob in blobs]
    content = [form for one in (CANARY, *names) for form in (one.encode(), base64.urlsafe_b64encode(one.encode()))]
    trail = world.topology.below(Subject.AUDIT).removesuffix(">")
    found = []
    async for subject, data, is_list in everything(world):
        whole = subject.encode() + data
        is_record = is_list or subject == world.topology.lifecycle(tree) or subject.startswith(trail)
        named = tree.encode() in whole and not is_record
        if named or any(form in whole for form in content):
            found.append(subject)
    return found


async def gone(world: World, tree: str, *blobs: str) -> None:
    """Until nothing of the tree is left."""
    left: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        left = await left_of(world, tree, *blobs)
        if not left:
            return
    raise AssertionError(f"left of {tree}: {left}")


async def full_tree(world: World, run: str) -> list[str]:
    """A finished tree with something of everything: a child, calls, effects, timers, blobs, a session."""
    image = await world.blobs.put(f"image of {CANARY}".encode() * 10)
    output = await world.blobs.put(f"output of {CANARY} {run}".encode() * 10)
    spilled = f"{CANARY} {run} " * 20_000
    child, call = call_id(run, 1, 0), call_id(run, 1, 1)
    task = Task(id=task_id(run), tree=run, run=run, at=time.time(), agent="boss", task=spilled, images=[image])
    await world.bus.send(task, "gateway")
    await world.bus.send(
        ToolCall(id=call, tree=run, run=run, at=1.0, agent="boss", tool="look", arguments={"at": CANARY}),
        "boss",
    )
    claim = EffectClaim(
        id=f"{call}:claim",
        tree=run,
        run=run,
        at=1.0,
        call=call,
        executor="e",
        call_seq=1,
        agent="boss",
        tool="look",
    )
    await NatsEffects(world.nc, world.topology).claim(claim)
    result = ToolResult(id=result_id(call), tree=run, run=run, at=1.0, call=call, tool="look", output=CANARY)
    await world.bus.send(result, "look", to="boss")
    timer = TimerFired(id=f"{run}:t", tree=run, run=run, at=1.0, name="t")
    await world.bus.schedule(timer, "boss", time.time() + 3600)
    root, below = world.scribe(run), world.scribe(child, "helper", run)
    accepted = root.accepted(spilled, session="talk")
    await root.write(RunAccepted(task=accepted.task, spec=accepted.spec, decided_by="tool_calling"), CALLED)
    await below.write(below.accepted(CANARY))
    await below.write(FINISHED)
    await root.write(ToolAnswered(call=call, tool="look", output=CANARY, blob=output))
    await root.write(FINISHED)
    sessions = NatsSessions(world.nc, world.topology)
    _, fence = await sessions.read("boss", "talk", None)
    await sessions.record("boss", "talk", None, SessionTurn(run=run, at=time.time()), fence)
    return [image, output]
