"""The counts of a model, and those of its endpoint, correct the estimate of tokens."""

import re
from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.engine.context.context_budget import limit, note_count, room
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.run import Phase, Run
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from simulation.contexts import size_of
from unit.loop.build import SimulatedRun, call, result, sound, spec
from unit.loop.memory_world import PROMPTS
from unit.loop.test_context import BASE

CONTEXT = 8_000
PROSE, NUMBERS = "word " * 250, "1234567890" * 60


def small(context: int = CONTEXT, **fields: Any) -> AgentSpec:
    model = ModelSpec(context=context, max_tokens=1_000)
    return spec(model=model, limits=Limits(max_steps=60, repeats=0), **fields)


def counted(request: ModelRequest) -> int:
    """Tokens by a tokenizer that makes 0.6 times the estimate of prose and all of it of numbers."""
    numbers = sum(str(message.get("content")).count(NUMBERS) for message in request.messages)
    dense = size_of(ModelRequest(messages=[{"role": "user", "content": NUMBERS}])) * numbers
    return int(dense + 0.6 * max(0, size_of(request) - dense))


def worked(sim: SimulatedRun, seen: list[str], takes: int = 0) -> list[int]:
    """Return what the model counts of each request while it observes these texts; an endpoint that takes less says
    so."""
    transcript, sizes = Transcript(PROMPTS), list[int]()
    for number, text in enumerate(seen):
        while sim.run.phase is Phase.THINKING:
            assert sim.run.model is not None
            purpose = sim.run.model.purpose
            size = counted(transcript.request(sim.run, purpose))
            if takes and size > takes:
                sim.fail("too long", final=True, too_long=True, context=takes, tokens=size)
                continue
            sizes.append(size)
            if purpose == "summary":
                sim.say(content="Found so far: 42 things.", usage=Usage(size, 5))
                continue
            sim.say(call("look", at=f"place {number}"), usage=Usage(size, 5))
            sim.arrive(result(sim.id(), text))
    return sizes


def test_a_context_that_the_endpoint_lists_holds_from_its_first_answer_on() -> None:
    sim = SimulatedRun(spec()).begin()
    for told, held in ((9_000, 9_000), (12_000, 9_000), (8_000, 8_000)):
        reply = ModelReplied(attempt=1, content="", usage=Usage(1, 1), context=told)
        sim.arrive(reply)
        assert sim.run.context == held


@pytest.mark.parametrize("seen", [[PROSE] * 50, [*[PROSE] * 20, *[NUMBERS] * 30], [PROSE, NUMBERS] * 25])
def test_a_context_is_filled_by_the_models_own_count_and_never_more(seen: list[str]) -> None:
    sim = SimulatedRun(small(), base=BASE).begin()
    sizes = worked(sim, seen)
    assert 0.85 * room(small()) < max(sizes) <= room(small())
    assert any(isinstance(e, ev.HistorySummarized) for entry in sim.journal() for e in entry.events)
    sound(sim)


@pytest.mark.parametrize(
    ("tokens", "by_estimate"),
    [
        pytest.param(0, 7_000, id="nothing was counted"),
        pytest.param(660, 7_000, id="a count that cannot be the whole request"),
        pytest.param(2_500, 7_000 + 1_500, id="fewer"),
        pytest.param(4_200, int(7_000 / (1.05 * 4_200 / 4_000)), id="more"),
        pytest.param(100_000, 7_000 // 4, id="more than can be"),
    ],
)
def test_room_by_the_latest_count(tokens: int, by_estimate: int) -> None:
    run = Run(id="r", tree="r", spec=small(), decided_by="tool_calling", fixed_tokens=3_000, tokens=1_100)
    note_count(run, tokens, 100)
    assert limit(run) == by_estimate


def test_a_longer_request_that_counts_for_less_is_not_believed() -> None:
    run = Run(id="r", tree="r", spec=small(), decided_by="tool_calling", fixed_tokens=3_000, tokens=1_000)
    note_count(run, 2_500, 0)
    run.tokens = 1_100
    note_count(run, 2_400, 0)
    assert limit(run) == 7_000 + 1_500
    run.tokens = 500
    note_count(run, 2_400, 0)
    assert limit(run) == 7_000 + 1_100


def test_a_count_beyond_the_room_makes_the_next_request_smaller() -> None:
    run = Run(id="r", tree="r", spec=small(2_000), decided_by="tool_calling", fixed_tokens=1_500, tokens=500)
    note_count(run, 1_500, 0)
    assert limit(run) == 1_000 * 2_000 // 1_500


def test_a_small_request_that_counts_for_more_says_little_about_texts() -> None:
    run = Run(id="r", tree="r", spec=small(), decided_by="tool_calling", fixed_tokens=300, tokens=100)
    note_count(run, 600, 0)
    assert limit(run) == 7_000 - 200


# --- what an endpoint says when it refuses


@pytest.mark.parametrize("takes", [4_000, 6_000])
def test_one_refusal_that_says_how_much_is_too_long_is_enough(takes: int) -> None:
    sim = SimulatedRun(small(128_000), base=BASE).begin()
    sizes = worked(sim, [*[PROSE] * 30, *[NUMBERS] * 10], takes)
    assert sim.run.overflows == 1
    assert sim.run.context == takes
    assert sim.run.refused_tokens is None
    assert max(sizes[30:]) <= takes
    assert max(sizes) > 0.8 * (takes - 1_000)
    sound(sim)


def test_an_endpoint_whose_word_makes_nothing_shorter_is_not_taken_at_it() -> None:
    sim = SimulatedRun(small(), base=BASE).begin()
    for _ in range(3):
        sim.say(call("look", at="x"))
        sim.arrive(result(sim.id(), PROSE))
    before = limit(sim.run)
    sim.fail("context_length_exceeded", final=True, too_long=True, context=100_000)
    assert sim.run.refused_tokens is not None
    assert limit(sim.run) < before


def test_a_refusal_of_a_summary_says_nothing_of_the_steps() -> None:
    sim = SimulatedRun(small(), base=BASE).begin()
    while sim.run.model is not None and sim.run.model.purpose == "act":
        sim.say(call("look", at="x"))
        sim.arrive(result(sim.id(), PROSE))
    sim.fail("too long", final=True, too_long=True, context=7_000, tokens=7_100)
    assert (sim.run.counted, sim.run.context) == (None, 7_000)


# --- contexts that the estimate calls too small


def test_instructions_that_the_estimate_has_no_room_for_are_tried() -> None:
    sim = SimulatedRun(small(2_500), base=2_000).begin()
    assert sim.run.phase is Phase.THINKING
    sim.say(call("look", at="x"), usage=Usage(1_200, 5))
    sim.arrive(result(sim.id(), "Nothing there."))
    assert sim.run.phase is Phase.THINKING
    assert limit(sim.run) > 2_000


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, r"set model.context"),
        ({"context": 2_048, "tokens": 2_300}, r"2048.*short"),
    ],
)
def test_they_end_the_run_when_the_endpoint_refuses_them(said: dict[str, int], error: str) -> None:
    sim = SimulatedRun(small(2_500), base=2_000).begin()
    sim.fail("too long", final=True, too_long=True, **said)
    assert sim.run.result is not None
    assert sim.run.result.error is not None
    assert re.search(error, sim.run.result.error.message)


def test_an_endpoint_that_takes_less_than_an_answer_may_have() -> None:
    sim = SimulatedRun(small(2_500), base=600).begin()
    sim.fail("too long", final=True, too_long=True, context=1_000)
    assert sim.run.result is not None
    assert "1000" in repr(sim.run.result)


def test_a_task_alone_is_cut_to_what_the_endpoint_takes() -> None:
    sim = SimulatedRun(small(128_000), base=1_000).begin("word " * 20_000)
    transcript = Transcript(PROMPTS)
    transcript.request(sim.run, "act")
    sim.fail("too long", final=True, too_long=True, context=8_000, tokens=20_000)
    assert sim.run.phase is Phase.THINKING
    request = transcript.request(sim.run, "act")
    assert size_of(request) <= 8_000
