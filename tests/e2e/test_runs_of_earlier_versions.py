"""Runs that an earlier version of Cadre began and left in flight: this one goes on with them, and shows them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.hash_chain import expanded
from cadre.journal.entry import FAN
from cadre.service.platform import Platform
from harness.stack import Gateway, Stack
from journals import kept

FEATURES = Path(__file__).parent / "features"
VERSION = "1.0"
SHARDS = 2


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The streams hold what the earlier version left there before any service of this one starts."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        left_behind(stack)
        stack.model(FEATURES / "script.yaml")
        stack.agent(FEATURES / "solo.yaml", start=False)
        for file in sorted(FEATURES.glob("*.py")):
            stack.tools(file, start=False)
        stack.open_gateway()
        yield stack


class Left:
    """A journal up to its `entries`th entry, and what waited in the run's inbox then."""

    def __init__(self, name: str, entries: int) -> None:
        self.lines = kept.lines(VERSION, name)[:entries]
        self.tree, self.run = self.lines[0].subject.split(".")[-2:]
        self.inbox: dict[str, Any] | None = None
        self.place = 0
        """The position of the inbox's record; 0: behind all entries."""

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(expanded(line.data)) for line in self.lines]


def waiting_for_a_tool() -> Left:
    """One of two calls has its answer, the other's lies in the inbox."""
    left = Left("parallel_tools", 3)
    opened = [event for event in left.entries[1]["events"] if event["type"] == "tool.called"]
    answered = left.entries[2]["events"][0]["call"]
    [call] = [event for event in opened if event["call"] != answered]
    left.inbox = {
        "type": "tool_result",
        "v": 1,
        "id": f"{call['call']}:result",
        "tree": left.tree,
        "run": left.run,
        "at": left.entries[2]["at"] + 1,
        "call": call["call"],
        "tool": call["tool"],
        "output": "at last",
    }
    return left


def asking_its_model() -> Left:
    """The worker died in the middle of the call; its record comes again."""
    left = Left("call_in_text", 1)
    left.inbox = left.entries[0]["events"][0]["task"]
    left.place = left.lines[0].seq - 1
    return left


def of_many_entries() -> Left:
    """Cut where a model's answer has called a tool, far behind the first block of back-pointers."""
    lines = kept.lines(VERSION, "long_run")
    end = next(
        n
        for n, line in enumerate(lines)
        if n > 2 * FAN and json.loads(line.data)["events"][-1]["type"] == "tool.called"
    )
    left = Left("long_run", end + 1)
    call = left.entries[-1]["events"][-1]
    left.inbox = {
        "type": "tool_result",
        "v": 1,
        "id": f"{call['call']}:result",
        "tree": left.tree,
        "run": left.run,
        "at": left.entries[-1]["at"] + 1,
        "call": call["call"],
        "tool": call["tool"],
        "output": call["arguments"]["a"] + 1,
    }
    return left


def ended() -> Left:
    return Left("max_steps", 100)


LEFT = [waiting_for_a_tool(), asking_its_model(), of_many_entries(), ended()]


def left_behind(stack: Stack) -> None:
    async def store() -> None:
        async with stack.platform() as platform:
            for shard in range(SHARDS):
                await store_shard(platform, shard)

    asyncio.run(store())


async def store_shard(platform: Platform, shard: int) -> None:
    """Each entry at the very place that its successors name."""
    topology = platform.topology
    here = [left for left in LEFT if topology.shard(left.tree) == shard]
    places = {line.seq: (line.subject, line.data) for left in here for line in left.lines}
    behind = max(places, default=0) + 1
    for left in here:
        if left.inbox is not None:
            place = left.place or behind
            behind += place == behind
            assert place not in places
            sender = left.inbox.get("tool", "gateway")
            subject = topology.inbox("solo", sender, left.tree, left.run)
            places[place] = (subject, json.dumps(left.inbox).encode())
    for seq in range(1, behind):
        filler = (f"{topology.prefix}.in.{shard}.nobody.test.filler.filler{seq}", b"{}")
        assert await jetstream.append(platform.nc, *places.get(seq, filler)) == seq


def test_a_run_goes_on_when_its_tools_answer(gateway: Gateway) -> None:
    result = gateway.finished(LEFT[0].run)
    assert result["state"] == "success"
    assert "at last" in result["output"]


def test_a_model_call_that_was_lost_is_made_again(gateway: Gateway) -> None:
    result = gateway.finished(LEFT[1].run)
    assert (result["state"], result["output"]) == ("success", "heard spoken")


def test_a_run_of_many_entries_goes_on(gateway: Gateway) -> None:
    result = gateway.finished(LEFT[2].run)
    assert (result["state"], result["output"]) == ("success", "90 numbers")


def test_what_has_ended_is_shown(gateway: Gateway) -> None:
    result = gateway.run(LEFT[3].run, full="true")
    assert (result["state"], result["step"]) == ("max_steps_error", 3)
    assert [step["type"] for step in result["memory"]].count("action") == 3
    listed = [run["id"] for run in gateway.request("GET", "/v1/runs").json()["runs"]]
    assert {left.run for left in LEFT} <= set(listed)
    names = [name for name, _ in gateway.events(LEFT[3].run)]
    assert names[0] == "run.accepted"
    assert names[-2:] == ["run.finished", "end"]


@pytest.mark.parametrize("number", range(len(LEFT)))
def test_old_and_new_entries_of_one_journal_are_decided_alike(gateway: Gateway, number: int) -> None:
    run = LEFT[number].run
    gateway.finished(run)
    found = gateway.request("GET", f"/v1/runs/{run}/replay").json()
    assert (found["divergences"], found["undecided"]) == ([], [])
    assert found["entries"] >= len(LEFT[number].lines)


def test_it_can_be_forked(gateway: Gateway) -> None:
    answer = gateway.request("POST", f"/v1/runs/{LEFT[2].run}/fork", json={"at": 60})
    assert answer.status_code == 202, answer.text
    assert gateway.finished(answer.json()["id"])["output"] == "90 numbers"
