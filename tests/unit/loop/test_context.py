"""A history never outgrows its model's context: what does not fit is summarized, however the run goes on."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semantic_text_splitter import TextSplitter

from cadre.engine.chat import Transcript, base_tokens, summary_prompt
from cadre.engine.context.context_budget import limit, summary_tokens, weight_of_memory
from cadre.engine.context.text_size import fit, tokens_of
from cadre.engine.fold import apply_entry
from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Phase, Run, Step, Summary, TaskStep
from cadre.kinds.code.records import CodeStep
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from journals import kept
from loop_texts import SAMPLES
from simulation.contexts import size_of
from unit.loop.build import ANSWER, OFFER, SimulatedRun, call, only, report, result, spec, task
from unit.loop.memory_world import PROMPTS

SMALL = 8_000
BASE = base_tokens(
    Run(id="", tree="", spec=spec(), decided_by="tool_calling", tools=OFFER.tools, members=OFFER.members),
    PROMPTS,
)


def small(context: int = SMALL, **fields: Any) -> AgentSpec:
    limits = Limits(max_steps=fields.pop("max_steps", 40), repeats=0)
    return spec(model=ModelSpec(context=context, max_tokens=1_000), limits=limits, **fields)


def begun(agent: AgentSpec, text: str = "Do it.", base: int = BASE, **fields: Any) -> SimulatedRun:
    return SimulatedRun(agent, base=base).begin(text, **fields)


def one_step(sim: SimulatedRun, seen: str, content: str = "Look further.") -> None:
    """A call with its observation; a summary that is asked for in between is written."""
    condense(sim)
    sim.say(call("look", at=f"place {sim.run.step}"), content=content)
    sim.arrive(result(sim.id(), seen))


def condense(sim: SimulatedRun, text: str = "Found so far: 42 things.") -> bool:
    asked = sim.run.model is not None and sim.run.model.purpose == "summary"
    if asked:
        sim.say(content=text)
    return asked


def purpose(sim: SimulatedRun) -> str:
    assert sim.run.model is not None
    return sim.run.model.purpose


def full(seen: str = "") -> SimulatedRun:
    """A run whose context is full: a summary is asked for."""
    sim = begun(small())
    while purpose(sim) != "summary":
        one_step(sim, seen + "word " * 400)
    return sim


# --- the estimate


@pytest.mark.parametrize("name", SAMPLES)
def test_no_text_takes_more_tokens_than_are_counted_for_it(name: str) -> None:
    """Held against the byte pairs of a model in wide use."""
    text = SAMPLES[name]
    whole = TextSplitter.from_tiktoken_model("gpt-4o", max(1, tokens_of(text))).chunks(text)
    assert len(whole) == 1


@given(text=st.text(max_size=4_000), tokens=st.integers(0, 2_000))
def test_a_text_is_cut_to_what_there_is_room_for(text: str, tokens: int) -> None:
    cut = fit(text, tokens)
    assert cut == text if tokens_of(text) <= tokens else tokens_of(cut) <= max(tokens, 64)


# --- never exceeded

texts = st.sampled_from([*SAMPLES.values(), "x" * 9_000, "短い文。" * 900, "", "ok"])
turns = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), texts, st.lists(texts, min_size=1, max_size=4)),
        st.tuples(st.just("wrong"), texts, st.just([])),
        st.tuples(st.just("member"), texts, st.lists(texts, min_size=1, max_size=2)),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60)
@given(
    turns=turns,
    context=st.sampled_from([7_000, 9_000, 16_000]),
    interval=st.sampled_from([None, 1, 3]),
    asked=texts,
    summaries=texts,
    earlier=st.lists(texts, max_size=4),
)
def test_no_request_outgrows_the_context(
    turns: Any, context: int, interval: int | None, asked: str, summaries: str, earlier: list[str]
) -> None:
    history: list[Step] = [
        step
        for number, text in enumerate(earlier, 1)
        for step in (
            TaskStep(task=text),
            ActionStep(number=number, content=text, own=CodeStep(code="", observation=text)),
        )
    ]
    sim = SimulatedRun(small(context, planning_interval=interval, max_steps=len(turns) + 1), base=BASE)
    transcript = Transcript(PROMPTS)
    sim.arrive(task(asked or "Do it."), history=history)
    for turn in [*turns, None]:
        thinks(sim, transcript, summaries)
        if turn is None or sim.run.phase is not Phase.THINKING:
            break
        act(sim, *turn)
    assert sim.run.phase in (Phase.THINKING, Phase.DONE)
    error = sim.run.result.error if sim.run.result is not None else None
    assert error is None or error.type in ("AgentMaxStepsError", "AgentGenerationError")


def thinks(sim: SimulatedRun, transcript: Transcript, summaries: str) -> None:
    """Until the model is asked for an action; each request on the way is measured."""
    while sim.run.phase is Phase.THINKING:
        asked = purpose(sim)
        request = transcript.request(sim.run, asked)
        assert size_of(request) <= limit(sim.run), asked
        if asked == "act":
            return
        sim.say(content=summaries if asked == "summary" else "1. Look. 2. Tell.")


def act(sim: SimulatedRun, kind: str, content: str, seen: list[str]) -> None:
    first = sim.run.step
    if kind == "wrong":
        sim.say(content=content)
    elif kind == "calls":
        sim.say(*(call("look", at=text[:500]) for text in seen), content=content)
        for index, text in enumerate(seen):
            sim.arrive(result(f"r1_{first}_{index}", text))
    else:
        sim.say(*(call("kid", task=text or "Help.") for text in seen), content=content)
        for index, text in enumerate(seen):
            sim.arrive(report(f"r1_{first}_{index}", text))


# --- what a summary is


def test_earlier_steps_make_room_and_the_latest_are_kept_word_for_word() -> None:
    sim = begun(small(), "Count all birds.")
    transcript = Transcript(PROMPTS)
    count = 0
    while purpose(sim) != "summary":
        one_step(sim, f"seen {count} " + "word " * 400)
        count += 1
    asked = transcript.request(sim.run, "summary")
    assert "seen 0" in asked.messages[0]["content"]
    assert f"seen {count - 1}" not in asked.messages[0]["content"]
    assert asked.messages[0]["content"].count("Count all birds.") == 1, "the task is not summarized"
    assert asked.max_tokens is not None
    events = sim.say(content="It came to 42 so far.", usage=Usage(input_tokens=3, output_tokens=2))
    assert only(events, ev.HistorySummarized).text == "It came to 42 so far."
    text = "\n".join(str(m["content"]) for m in transcript.request(sim.run, "act").messages)
    assert "Count all birds." in text
    assert "It came to 42 so far." in text
    assert "seen 0" not in text
    assert f"seen {count - 1}" in text
    assert sim.run.usage.model_calls == count + 1


def test_a_later_summary_takes_the_earlier_one_in() -> None:
    sim = begun(small())
    transcript = Transcript(PROMPTS)
    written = 0
    for number in range(60):
        if purpose(sim) == "summary":
            asked = transcript.request(sim.run, "summary").messages[0]["content"]
            assert (f"summary number {written} " in asked) is (written > 0)
            written += 1
            sim.say(content=f"summary number {written} " + "of words " * 100)
            if written == 3:
                break
        one_step(sim, f"seen {number} " + "word " * 300)
    assert written == 3


@pytest.mark.parametrize("before", [None, "in short " * 2_000])
def test_what_is_to_be_summarized_is_cut_to_the_room_that_an_earlier_summary_leaves(
    before: str | None,
) -> None:
    sim = begun(small())
    sim.run.summary = Summary(text=before, covers=1, step=1, attempt=1) if before else None
    past = [{"role": "user", "content": "word " * 20_000}]
    prompt = summary_prompt(sim.run, past, "Do it.", PROMPTS)
    room = limit(sim.run) - summary_tokens(sim.run)
    assert room - 1_000 < tokens_of(prompt) <= room


def test_messages_only_grow_between_two_summaries() -> None:
    sim = begun(small())
    transcript = Transcript(PROMPTS)
    before: list[Any] = []
    summaries = 0
    for _ in range(25):
        if condense(sim):
            summaries += 1
            before = []
        now = list(transcript.request(sim.run, "act").messages)
        assert now[: len(before)] == before
        before = now
        one_step(sim, "word " * 300)
    assert summaries >= 2


def test_a_fold_reads_the_same_as_a_run_that_was_followed() -> None:
    sim = begun(small())
    followed = Transcript(PROMPTS)
    for _ in range(20):
        condense(sim)
        now = followed.request(sim.run, "act")
        assert Transcript(PROMPTS).request(sim.run, "act") == now
        one_step(sim, "word " * 300)


def test_a_long_run_costs_in_proportion_to_its_steps() -> None:
    sim = begun(small(max_steps=300))
    transcript = Transcript(PROMPTS)
    costs: list[int] = []
    summaries = 0
    for _ in range(200):
        cost = 0
        while purpose(sim) == "summary":
            cost += size_of(transcript.request(sim.run, "summary"))
            condense(sim)
            summaries += 1
        cost += size_of(transcript.request(sim.run, "act"))
        costs.append(cost)
        one_step(sim, "word " * 200)
    assert sum(costs[100:]) <= 1.1 * sum(costs[50:150])
    assert summaries <= 200 / 3


# --- when it does not go as planned


def test_a_summary_that_cannot_be_had_is_told_in_short() -> None:
    sim = full("seen it ")
    summarized = only(sim.fail("refused", final=True), ev.HistorySummarized)
    assert summarized.without_model
    assert "Step 1: Look further." in summarized.text
    assert "look: seen it" in summarized.text
    assert purpose(sim) == "act"


def test_a_summary_that_is_a_call_is_told_in_short() -> None:
    written = '{"name": "look", "arguments": {"at": "moss"}}'
    for said in (written, f"```json\n{written}\n```"):
        summarized = only(full("seen it ").say(content=said), ev.HistorySummarized)
        assert summarized.without_model
        assert "look: seen it" in summarized.text


def test_an_empty_summary_is_told_in_short() -> None:
    assert only(full().say(content="  "), ev.HistorySummarized).without_model


def test_a_summary_is_asked_for_again_when_its_worker_dies_or_the_endpoint_is_busy() -> None:
    sim = full()
    sim.lose()
    assert purpose(sim) == "summary"
    sim.fail("busy")
    sim.wake()
    assert purpose(sim) == "summary"
    condense(sim)
    assert purpose(sim) == "act"


def test_a_refusal_as_too_long_makes_room_and_counts_more_carefully() -> None:
    sim = begun(small(64_000))
    for _ in range(6):
        one_step(sim, "1234567890" * 200)
    before = limit(sim.run)
    step = sim.run.step
    sim.fail("maximum context length is 4096 tokens", final=True, too_long=True)
    assert limit(sim.run) < before
    assert purpose(sim) == "summary"
    condense(sim)
    assert sim.run.model is not None
    assert (purpose(sim), sim.run.step, sim.run.model.attempt) == ("act", step, 2)


@pytest.mark.parametrize("given", ["Do it.", "word " * 30_000])
def test_a_context_that_is_claimed_far_too_large_is_found_out(given: str) -> None:
    """The default next to an endpoint that takes a sixteenth of it."""
    sim = begun(small(128_000), given)
    transcript, refusals = Transcript(PROMPTS), 0
    for number in range(40):
        while True:
            asked = purpose(sim)
            if size_of(transcript.request(sim.run, asked)) > 8_000:
                refusals += 1
                sim.fail("context_length_exceeded", final=True, too_long=True)
                assert sim.run.phase is Phase.THINKING, f"given up in step {number}"
            elif not condense(sim):
                break
        if number < 39:
            one_step(sim, f"seen {number} " + "word " * 300)
    assert 1 <= refusals <= 5


def test_an_endpoint_that_refuses_whatever_comes_ends_the_run() -> None:
    sim = begun(small(64_000), base=0)
    for _ in range(30):
        if sim.run.phase is Phase.DONE:
            break
        sim.fail("context_length_exceeded", final=True, too_long=True)
    assert sim.run.result is not None
    assert sim.run.result.error == ErrorInfo("no-answer", "context_length_exceeded")


def test_the_models_own_count_corrects_the_estimate() -> None:
    sim = begun(small(64_000))
    one_step(sim, "9" * 6_000)
    before = limit(sim.run)
    sim.say(call("look", at="x"), usage=Usage(input_tokens=2 * (sim.run.fixed_tokens + sim.run.tokens)))
    assert limit(sim.run) < before / 1.9


def test_instructions_that_fill_the_context_end_the_run_with_a_word_about_it() -> None:
    sim = begun(small(2_000), base=5_000)
    assert sim.run.result is not None
    error = sim.run.result.error
    assert error is not None
    assert (error.code, "model.context" in error.message) == ("no-room", True)


def test_a_run_within_its_context_is_never_summarized() -> None:
    sim = begun(spec())
    for _ in range(5):
        one_step(sim, "word " * 100)
    sim.say(ANSWER)
    assert not any(isinstance(e, ev.HistorySummarized) for entry in sim.journal() for e in entry.events)


def test_a_plan_that_has_no_room_is_made_after_the_summary() -> None:
    sim = begun(small(planning_interval=2))
    planned = 0
    for _ in range(20):
        condense(sim)
        if purpose(sim) == "plan":
            planned += 1
            sim.say(content="1. Go on.")
            condense(sim)
        one_step(sim, "word " * 400)
    assert planned >= 9


def test_prompts_of_ones_own_may_leave_the_summary_out() -> None:
    assert Prompts.load("code").summary("It is done.").count("It is done.") == 1


def test_what_is_added_event_by_event_is_what_all_steps_weigh() -> None:
    """Between two steps: a call weighed twice, or as it does not stand in its step, would differ."""
    seen = Counter[str]()
    for name in kept.names("1.0"):
        for journal in kept.journals("1.0", name):
            run = Run(id=journal[0].entry.run, tree=journal[0].entry.tree)
            for one in journal:
                apply_entry(run, one.entry)
                if run.spec is None or run.phase is Phase.DONE or run.current is not None:
                    continue
                if kind_of(run).guided:
                    assert run.tokens == weight_of_memory(run), f"{name}, entry {one.entry.n} of {run.id}"
                    seen[run.decided_by] += 1
    assert set(seen) >= {"tool_calling", "code", "goals", "solution", "task_queue"}
