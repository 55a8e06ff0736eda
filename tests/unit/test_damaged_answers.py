"""No matter what becomes of an answer on its way, the run that waits for it goes on or ends: it never waits for
ever."""

import asyncio
import json
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cadre.errors import ModelUnavailable
from cadre.journal.run import Run
from cadre.ports import ModelReply
from cadre.protocol.messages import Message
from cadre.runtime.inbox import Inbox
from cadre.runtime.journaling import World
from harness.memory_ports import MemoryBlobs
from kinds.code.build import ANSWER_WITH_CODE, asks, ended, yielded
from unit.loop.build import ANSWER, OFFER, call, report, result, spec, task, timer
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.workers import says
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

PLACE = frozenset({"v", "type", "id", "tree", "run", "call", "tool", "child", "agent", "block", "exchange", "name"})
"""Fields that say which answer it is: one of another call is no answer to this one, and `v` of a newer version is left
to anyone who reads that."""


class Awaited(NamedTuple):
    """An answer, and the run that waits for it."""

    answer: Message
    sender: str
    first: ModelReply | Exception
    """The first answer of the run's model: it makes the run wait."""
    kind: str = "tool_calling"


_LOOKS = says(call("look", at="x"))
_CODE = ModelReply(content=ANSWER_WITH_CODE)
AWAITED = {
    "result": Awaited(replace(result("r1_1_0"), tool="look"), "look", _LOOKS),
    "report": Awaited(report("r1_1_0"), "kid", says(call("kid", task="help"))),
    "timer": Awaited(timer("model-act-1-1"), "timer", ModelUnavailable("busy", retry_after=60.0)),
    "yielded": Awaited(yielded(asks("look", at="x")), "sandbox", _CODE, "code"),
    "finished": Awaited(ended(output=3, text="3", logs="three"), "sandbox", _CODE, "code"),
}

_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def _waits(run: Run) -> bool:
    """Return whether the run is where it was before the answer came: its first model call is over, and nothing else
    is."""
    return run.entries <= 2


@pytest.mark.parametrize("name", AWAITED)
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_became_of_an_answer_its_run_goes_on_or_ends(name: str, data: st.DataObject) -> None:
    awaited = AWAITED[name]
    whole: dict[str, Any] = msgspec.to_builtins(awaited.answer)
    fields = sorted(set(whole) - PLACE)
    changed = data.draw(st.dictionaries(st.sampled_from(fields), _JUNK, max_size=2))
    dropped = data.draw(st.sets(st.sampled_from(sorted(set(whole) - {"v", "type"})), max_size=1))
    length = data.draw(st.none() | st.integers(0, 300))
    kept = {key: value for key, value in {**whole, **changed}.items() if key not in dropped}
    sent = json.dumps(kept).encode()[:length]

    async def play() -> None:
        world = MemoryWorld()
        model = ScriptedModel(awaited.first, says(ANSWER), says(ANSWER), says(ANSWER))
        of_kind = spec(kind=awaited.kind)
        await world.worker(of_kind, model, OFFER).handle(task())
        assert _waits(world.run("r1"))
        inbox = Inbox(
            "boss",
            world.worker(of_kind, model, OFFER),
            World(world.journal, world.bus, model, world.clock, world.tallies),
            MemoryBlobs(),
            MemoryQuarantine(),
        )
        await inbox.handle(Delivered(1, sent, f"cadre.in.0.boss.{awaited.sender}.r1.r1"))
        assert not _waits(world.run("r1")), sent

    asyncio.run(play())
