"""A run reads the prompts that it began with, no matter who goes on with it."""

import msgspec
import pytest

from cadre.errors import PromptError
from cadre.journal import events as ev
from cadre.loop.redecide import Journaled, redecide
from cadre.ports import ModelReply
from cadre.prompting.prompt_file import contracts, locate, read_texts
from cadre.prompting.prompts import Prompts, PromptTexts
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from harness.memory_ports import MemoryBlobs
from unit.loop.build import ANSWER, OFFER, SPEC, call, result, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel

TEXTS = read_texts(locate("tool_calling"), "tool_calling")


def worded(word: str) -> Prompts:
    return Prompts("here", TEXTS | {key: f"{word} {TEXTS[key]}" for key in TEXTS}, "tool_calling")


def says(*calls: ev.RequestedCall) -> ModelReply:
    return ModelReply(calls=list(calls), model="m")


async def replica(world: MemoryWorld, model: ScriptedModel, prompts: Prompts, blobs: MemoryBlobs) -> Runner:
    pinned = PinnedPrompts(prompts, blobs)
    await pinned.store()
    runner = world.worker(SPEC, model, OFFER, pinned)
    runner.journaling.revision = prompts.ref[5:17]
    return runner


def first_words(model: ScriptedModel) -> list[str]:
    """Of each message of the last request that is rendered from a template."""
    return [m["content"].split()[0] for m in model.requests[-1].messages if m["role"] in ("system", "user")]


async def test_another_replica_goes_on_with_the_prompts_of_the_first() -> None:
    world, blobs = MemoryWorld(), MemoryBlobs()
    first, second = ScriptedModel(says(call("add", a=1, b=1))), ScriptedModel(says(ANSWER))
    ours = worded("Old")
    assert await (await replica(world, first, ours, blobs)).handle(task())
    other = await replica(world, second, worded("New"), blobs)
    assert await other.handle(result("r1_1_0", 2), deliveries=2)
    assert first_words(second) == first_words(first) == ["Old", "Old"]
    assert await other.handle(task(run="r2"))
    assert first_words(second) == ["New", "New"]
    run = world.run("r1")
    assert (run.prompts, run.revision) == (ours.ref, ours.ref[5:17])
    journaled = [Journaled(entry.n, entry) for entry in world.entries("r1")]
    assert {one.about for one in redecide([journaled]).divergences} <= {"back-pointers"}
    accepted = world.events("r1")[0]
    assert isinstance(accepted, ev.RunAccepted)
    pins = msgspec.json.encode({"prompts": accepted.prompts, "revision": accepted.revision})
    assert len(pins) < 150, "the texts themselves are not in the journal"


async def test_without_the_text_a_run_goes_on_with_what_is_at_hand() -> None:
    world = MemoryWorld()
    first, second = ScriptedModel(says(call("add", a=1, b=1))), ScriptedModel(says(ANSWER))
    assert await (await replica(world, first, worded("Old"), MemoryBlobs())).handle(task())
    assert await (await replica(world, second, worded("New"), MemoryBlobs())).handle(result("r1_1_0", 2))
    assert first_words(second) == ["New", "New"]


async def test_a_services_own_prompts_are_not_read_from_the_store() -> None:
    blobs = MemoryBlobs()
    pinned = PinnedPrompts(worded("New"), blobs)
    await pinned.store()
    assert await pinned.find(pinned.ref) is await pinned.find("") is pinned.own
    assert (blobs.puts, blobs.gets) == (1, 0)


async def test_what_cadre_ships_is_found_without_the_text() -> None:
    shipped = Prompts.load("code_short")
    pinned = PinnedPrompts(worded("New"), MemoryBlobs())
    assert (await pinned.find(shipped.ref)).ref == shipped.ref
    assert await pinned.find("") is pinned.own


async def test_a_report_is_rendered_from_the_prompts_of_its_run() -> None:
    world, blobs = MemoryWorld(), MemoryBlobs()
    kid = msgspec.structs.replace(SPEC, name="kid", team=[])
    boss = ScriptedModel(says(call("kid", task="Add.")), says(ANSWER))
    world.worker(SPEC, boss, OFFER)
    ended = PinnedPrompts(worded("Old"), blobs)
    await ended.store()
    runner = world.worker(kid, ScriptedModel(says(ANSWER)), OFFER, ended)
    await world.drive(task())
    assert boss.requests[-1].messages[-1]["content"].startswith("Old ")
    assert runner is not None


def test_what_was_kept_by_a_version_with_fewer_templates_is_completed() -> None:
    old = {key: text for key, text in TEXTS.items() if key != "memory.summary"}
    kept = msgspec.json.encode(PromptTexts("tool_calling", {**old, "gone": "{{ nothing }}"}))
    assert Prompts.decode("kept", kept).summary("So far.") == Prompts.load("tool_calling").summary("So far.")
    assert Prompts.decode("kept", Prompts.load("code").encoded).kind == "code"
    assert set(TEXTS) == set(contracts()["tool_calling"])


@pytest.mark.parametrize(
    "kept",
    [b"", b"{}", b'{"kind":"dance","templates":{}}', b'{"kind":"code","templates":{"system_prompt":""}}'],
)
def test_what_cannot_be_used_is_an_error_of_prompts(kept: bytes) -> None:
    with pytest.raises(PromptError, match="kept"):
        Prompts.decode("kept", kept)
