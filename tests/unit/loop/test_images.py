"""Images that tools return: shown to a model that sees, once, and only the latest of them."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.context.context_budget import IMAGE, weight_of_memory
from cadre.engine.context.images import Pictured, images_of
from cadre.engine.model_request import ModelRequest
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import FileInfo
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from kinds.code.build import ended
from unit.loop.build import SimulatedRun, call, report, result, spec
from unit.loop.test_transcript import asked

PROMPTS = Prompts.load("tool_calling")


def ref(letter: str) -> str:
    return "blob:" + letter * 64


def file(letter: str, kind: str = "image/png") -> dict[str, Any]:
    return {"$file": {"ref": ref(letter), "media_type": kind, "name": f"{letter}.png", "size": 3}}


def shown(request: ModelRequest) -> list[str]:
    parts = [part for m in request.messages if isinstance(m["content"], list) for part in m["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def after_looks(*outputs: Any, **fields: Any) -> SimulatedRun:
    """A run that has looked once a step, with these outputs."""
    sim = SimulatedRun(spec(**fields)).begin()
    for step, output in enumerate(outputs, 1):
        sim.say(call("look", at=str(step)))
        sim.arrive(result(f"r1_{step}_0", output))
    return sim


def test_images_are_found_wherever_they_stand() -> None:
    output = {
        "pages": [file("a"), {"deep": [file("b", "image/webp"), file("a")]}],
        "plot": {"$given": ["image", ref("c")]},
        "table": {"$given": ["table", ref("d")]},
        "sound": file("e", "audio/wav"),
        "drawing": file("f", "image/svg+xml"),
        "text": ref("0"),
        "elsewhere": {"$file": {"ref": "https://x/y.png", "media_type": "image/png"}},
    }
    assert images_of(output) == [ref("a"), ref("b"), ref("c")]


def test_an_image_follows_the_results_of_its_step_and_is_named_in_them() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("look", at="1"), call("add", a=1, b=2))
    sim.arrive(result("r1_1_1", 3))
    sim.arrive(result("r1_1_0", {"shot": file("a")}))
    *_, answer, first, second, picture = asked(sim).messages
    assert [m["role"] for m in (answer, first, second, picture)] == ["assistant", "tool", "tool", "user"]
    assert "a.png" in first["content"]
    assert ref("a") in first["content"]
    assert picture["content"][1:] == [{"type": "image_url", "image_url": {"url": ref("a")}}]


def test_messages_stay_as_they_were_said() -> None:
    sim = after_looks(file("a"))
    transcript = Transcript(PROMPTS)
    before = asked(sim, transcript).messages
    sim.say(call("look", at="2"))
    sim.arrive(result("r1_2_0", file("b")))
    after = asked(sim, transcript).messages
    assert after[: len(before)] == before
    assert shown(asked(sim)) == [ref("a"), ref("b")]


def test_only_the_latest_images_are_shown_and_notes_stand_for_the_rest() -> None:
    sim = after_looks([file("a"), file("b")], file("c"), file("d"), limits=Limits(images=2))
    request = asked(sim)
    assert shown(request) == [ref("c"), ref("d")]
    notes = [m["content"][0]["text"] for m in request.messages if isinstance(m, Pictured)]
    assert ["left out now" in note for note in notes] == [True, False, False]
    assert "[2 images of this step" in notes[0]
    sim = after_looks([file("a"), file("b")], file("c"), limits=Limits(images=2))
    assert shown(asked(sim)) == [ref("b"), ref("c")], "the later one of a step stays"
    assert shown(asked(after_looks(file("a"), limits=Limits(images=0)))) == []


def test_images_of_the_task_are_not_counted() -> None:
    sim = SimulatedRun(spec(limits=Limits(images=1))).begin(images=["blob:1", "blob:2"])
    sim.say(call("look", at="1"))
    sim.arrive(result("r1_1_0", file("a")))
    assert shown(asked(sim)) == ["blob:1", "blob:2", ref("a")]


def test_a_model_that_reads_text_only_is_shown_none() -> None:
    request = asked(after_looks(file("a"), model=ModelSpec(vision=False)))
    assert "image_url" not in json.dumps(request.messages)
    assert "a.png" in json.dumps(request.messages)


def test_images_of_an_output_that_was_cut_are_shown() -> None:
    info = FileInfo(ref=ref("a"), media_type="image/png")
    sound = FileInfo(ref=ref("b"), media_type="audio/wav")
    sim = SimulatedRun().begin()
    sim.say(call("look", at="1"))
    sim.arrive(result("r1_1_0", "begin … end", blob=ref("c"), files=[info, sound]))
    assert shown(asked(sim)) == [ref("a")]


def test_a_members_answer_shows_its_images() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="Draw."))
    sim.arrive(msgspec.structs.replace(report("r1_1_0", "drawn"), output=file("a")))
    assert shown(asked(sim)) == [ref("a")]


def test_one_image_twice_in_a_step_is_shown_once() -> None:
    assert shown(asked(after_looks([file("a"), file("a")]))) == [ref("a")]


def test_the_second_result_of_a_call_shows_nothing() -> None:
    sim = after_looks(file("a"))
    sim.arrive(msgspec.structs.replace(result("r1_1_0", file("b")), id="again"))
    assert shown(asked(sim)) == [ref("a")]


@pytest.mark.parametrize("vision", [True, False])
def test_code_sees_images_in_its_observation(vision: bool) -> None:
    code = Prompts.load("code")
    sim = SimulatedRun(spec(kind="code", model=ModelSpec(vision=vision))).begin()
    sim.say(content="Thought: look.\n<code>\nplot\n</code>")
    sim.arrive(ended(output={"$given": ["image", ref("a")]}, text="<image>"))
    request = asked(sim, Transcript(code))
    assert shown(request) == ([ref("a")] if vision else [])
    assert request.messages[-1]["role"] == "user"
    text = request.messages[-1]["content"]
    assert "<image>" in (text[0]["text"] if vision else text)


def test_images_that_are_not_shown_any_more_take_up_no_context() -> None:
    looks = [file(letter) for letter in "abcdef"]
    weights = [after_looks(*looks[:count], limits=Limits(images=2)).run.tokens for count in range(len(looks) + 1)]
    gained = [after - before for before, after in pairwise(weights)]
    assert min(gained[:2]) >= IMAGE
    assert max(gained[2:]) < IMAGE
    run = after_looks(*looks, limits=Limits(images=2)).run
    assert 2 * IMAGE <= weight_of_memory(run) <= run.tokens
