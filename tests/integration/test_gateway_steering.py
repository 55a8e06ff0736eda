"""Answers of the gateway to messages and signals, by the entries of the run's journal; no agent works here."""

import asyncio
import time
from typing import get_args

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import unpack_record
from cadre.journal import events as ev
from cadre.protocol.codes import IgnoredCode
from cadre.protocol.messages import Task
from cadre.protocol.topology import task_id
from cadre.spec.agent import AgentSpec
from harness.patience import until
from integration.gateway_world import Scribe, World, new_run


async def begun(world: World) -> Scribe:
    """A run of a live agent, which the test stands for."""
    run = new_run()
    scribe = world.scribe(run, "boss")
    task = Task(id=task_id(run), tree=run, run=run, at=time.time(), agent="boss", task="Work.")
    await scribe.write(
        ev.RunAccepted(task=task, spec=AgentSpec(name="boss", description="Works."), decided_by="tool_calling"),
        ev.ModelCalled(purpose="act", step=1, attempt=1, cause=task.id),
    )

    async def is_listed() -> bool:
        return (await world.http.get(f"/v1/runs/{run}")).status_code == 200

    await until(is_listed)
    return scribe


async def sent(world: World, run: str) -> str | None:
    """The id of the record in the run's inbox, once it is there."""
    stream, subject = world.topology.stream_of(run), world.topology.inbox_of_run(run, run)
    query = {"seq": 1, "batch": 100, "next_by_subj": subject}
    records = [await unpack_record(one.data, world.blobs) for one in await jetstream.batch(world.nc, stream, query)]
    return records[-1].id if records else None


@pytest.mark.parametrize(
    ("path", "kind", "code"),
    [
        ("messages", "UserMessage", "run-ended"),
        ("messages", "UserMessage", "messages-full"),
        ("signals/go", "Signal", "run-ended"),
        ("signals/go", "Signal", "signals-full"),
    ],
)
async def test_the_problem_has_the_code_of_why_the_run_ignored_it(
    world: World, path: str, kind: str, code: IgnoredCode
) -> None:
    """The run was going on when it was asked for: what counts is what its journal says then, by its code."""
    assert code in get_args(IgnoredCode)
    scribe = await begun(world)
    asking = asyncio.create_task(world.http.post(f"/v1/runs/{scribe.run}/{path}", json={"text": "Wait."}))
    scribe.cause = await until(lambda: sent(world, scribe.run))
    await scribe.write(ev.RecordIgnored(kind=kind, code=code))
    answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (409, code)
