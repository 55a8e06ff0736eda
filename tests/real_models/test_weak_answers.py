"""Tests of what real small models answer, replayed over HTTP to agents of every kind: each run ends and says clearly
why."""

import contextlib
from typing import Any, NamedTuple

import pytest

from cadre.adapters.models.model_chain import ModelChain
from cadre.errors import ModelUnavailable
from cadre.journal.run import ActionStep, Result
from cadre.kinds.code.section import CodeSpec
from cadre.kinds.goals.records import GoalsSpec
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections
from cadre.spec.model import ModelSpec
from cadre.testing import RunFailed, Team
from cadre.tool import Tool, tool
from harness.memory_ports import MemoryBlobs
from harness.patience import patience
from integration.model_calls import NO_ENDPOINT, ask, saying
from real_models.replay import ANSWERS, read_answer, replaying

TOKENS = 120

CODE = sections(CodeSpec())
STRUCTURED = sections(CodeSpec(structured=True))

KINDS: dict[str, dict[str, Any]] = {
    "native": {},
    "text": {"model": {"calls": "text"}},
    "schema": {"model": {"calls": "schema"}},
    "code": {"kind": "code", **CODE},
    "structured code": {"kind": "code", **STRUCTURED},
}

GOALS = ["Find out what is asked."]
OTHERS: dict[str, dict[str, Any]] = {
    "goals": {"kind": "goals", "prompts": None, **sections(GoalsSpec(goals=GOALS))},
    "solution": {"kind": "solution"},
    "task queue": {"kind": "task_queue", "prompts": None, **sections(TaskQueueSpec(goals=GOALS))},
}
"""Kinds whose answers have forms of their own."""

OF_OTHERS = {
    "goals": (("goals_same_call",), "'price_of' was called 3 times with these very arguments", 3),
    "solution": (("solution_of_nothing",), "Your solution has neither calls nor an output", 0),
    "task queue": (("queue_of_tasks", "queue_call", "queue_without_more", "queue_call"), "", 2),
}
"""By kind, what its model answers, what it learns of that, and how many calls are made."""

READABLE = ["functions_prefix_named", "parameters_for_arguments", "prose_with_a_brace"]
"""Calls in a form that is not the one asked for, and clear nevertheless."""

CUT = "was cut off at the limit of tokens before it was whole, so nothing of it was done"
NO_CALL, NO_BLOCK, NO_OBJECT = (
    "holds no tool call",
    "holds no block of code",
    "is not the JSON object that was asked",
)
WEAK = {
    "call_within_think": (NO_CALL, NO_BLOCK, NO_OBJECT),
    "code_within_think": (NO_CALL, NO_BLOCK, NO_OBJECT),
    "cut_call": (CUT, CUT, CUT),
    "cut_code": (CUT, CUT, CUT),
    "echoed_declaration": ("'wipe'", NO_BLOCK, NO_OBJECT),
    "empty": (NO_CALL, NO_BLOCK, NO_OBJECT),
    "endless_prose": (CUT, CUT, CUT),
    "endless_repetition": (CUT, CUT, CUT),
    "functions_prefix": ("arguments", NO_BLOCK, NO_OBJECT),
    "invented_argument": ("'price' was unexpected", NO_BLOCK, NO_OBJECT),
    "invented_tool": ("Unknown tool 'sendEmail', should be one of: add, price_of,", NO_BLOCK, NO_OBJECT),
    "same_call": ("was called 3 times with these very arguments", NO_BLOCK, NO_OBJECT),
    "same_failing_code": (NO_CALL, "NameError: name 'weigh' is not defined", NO_OBJECT),
    "same_failing_code_structured": (
        'needs the keys "name" and "arguments"',
        NO_BLOCK,
        "IndentationError",
    ),
}
"""By answer, what agents are sent that call tools, that write code, and that write code as JSON, or how they end."""


class Ended(NamedTuple):
    """The end of a run, and its actions."""

    result: Result
    told: str
    """The mistakes that its model read about."""
    calls: list[tuple[str, dict[str, Any]]]
    """The tools that were called."""
    steps: int
    summarized: bool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


@tool
def wipe(disk: str) -> str:
    """Wipe a disk.

    Args:
        disk: Which.
    """
    return f"{disk} is empty"


@tool(read_only=True)
def price_of(plant: str) -> str:
    """Look up what one plant costs.

    Args:
        plant: Name of the plant.
    """
    return f"one {plant} costs 3 euros"


@tool(read_only=True)
def stock_of(plant: str) -> str:
    """Look up how many plants of a kind are in stock.

    Args:
        plant: Name of the plant.
    """
    return f"40 of {plant} are in stock. " + "They stand by the door. " * 10


TOOLS: list[Tool[..., Any]] = [add, price_of, stock_of, wipe]


async def ended(kind: str, *answers: str, context: int | None = None, **fields: Any) -> Ended:
    """The end of a run of an agent of this kind, whose model gives these answers, the last again and again; it refuses
    requests over `context` tokens."""
    options = {"prompts": "short", **(KINDS | OTHERS)[kind], **fields}
    with replaying(*answers, context=context) as url:
        model = ModelSpec(name="small", url=url, max_tokens=TOKENS, **options.pop("model", {}))
        spec = AgentSpec(
            name="boss",
            description="Works.",
            tools=[one.name for one in TOOLS],
            model=model,
            limits=options.pop("limits", Limits(max_steps=8, repeats=3)),
            **options,
        )
        chain = ModelChain(model, NO_ENDPOINT, MemoryBlobs())
        try:
            async with Team(agents=[spec], tools=TOOLS, model=chain) as team:
                run = await team.start("boss", "What is 2 + 3?")
                with contextlib.suppress(RunFailed):
                    await run.result()
                state = run.run
                calls = [(call.tool, call.arguments) for call in team.calls]
        finally:
            await chain.close()
    assert state.result is not None
    steps = [step for step in state.steps if isinstance(step, ActionStep)]
    told = [call.error.message for step in steps for call in step.calls if call.error is not None]
    told += [step.error.message for step in steps if step.error is not None]
    return Ended(state.result, "\n".join(told), calls, len(steps), state.summary is not None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", WEAK)
async def test_every_kind_ends_and_says_why(answer: str, kind: str) -> None:
    end = await ended(kind, answer)
    assert end.result.state in ("error", "max_steps_error")
    assert end.result.error is not None
    assert end.result.error.type in ("LoopDetected", "AgentMaxStepsError")
    for_calls, for_code, for_structured = WEAK[answer]
    wanted = {"code": for_code, "structured code": for_structured}.get(kind, for_calls)
    assert wanted in f"{end.told}\n{end.result.error.message}"
    assert "wipe" not in [name for name, _ in end.calls]


@pytest.mark.parametrize("kind", ["native", "text", "schema"])
@pytest.mark.parametrize("answer", READABLE)
async def test_a_call_that_is_clear_is_made(answer: str, kind: str) -> None:
    end = await ended(kind, answer, "answer_five")
    assert (end.result.state, end.result.output) == ("success", "5")
    # A call amid prose is one only where the prompt asks the model to write its calls.
    amid_prose = answer == "prose_with_a_brace" and kind == "native"
    assert end.calls == ([] if amid_prose else [("add", {"a": 2, "b": 3})])


@pytest.mark.parametrize("kind", OTHERS)
async def test_kinds_with_forms_of_their_own_end_and_say_why(kind: str) -> None:
    """One model of half a billion parameters, asked for the price of a rose."""
    answers, told, calls = OF_OTHERS[kind]
    end = await ended(kind, *answers, limits=Limits(max_steps=4, repeats=3))
    assert end.result.state == ("error" if kind == "solution" else "max_steps_error")
    assert end.result.error is not None
    assert told in f"{end.told}\n{end.result.error.message}"
    assert end.calls == [("price_of", {"plant": "rose"})] * calls
    assert calls == 0 or "one rose costs 3 euros" in str(end.result.output)


async def test_a_context_of_2000_tokens() -> None:
    """A model that makes one call for ever fills it again and again; the endpoint says what it takes."""
    end = await ended("schema", "same_call", context=2_000, limits=Limits(max_steps=40, repeats=0))
    assert end.result.state == "max_steps_error"
    assert (end.steps, end.summarized) == (40, True)
    assert len(end.calls) == 40


async def test_an_endpoint_of_a_few_tokens_a_second() -> None:
    """The timeout is for silence, however long the whole answer takes."""
    with replaying("parameters_for_arguments", pause=0.25) as url:
        patient = ModelSpec(name="small", url=url, timeout=patience(1.0))
        reply, heard = await ask(patient, saying("What is 2 + 3?"))
        assert reply.content == "".join(heard) == '{"name": "add", "parameters": {"a": 2, "b": 3}}'
        assert len(heard) > 10
    with (
        replaying("parameters_for_arguments", pause=2.0) as url,
        pytest.raises(ModelUnavailable, match=r"sent nothing for 0\.5 s"),
    ):
        await ask(ModelSpec(name="small", url=url, timeout=0.5), saying("What is 2 + 3?"))


def test_every_answer_is_used_and_says_where_it_comes_from() -> None:
    names = {path.stem for path in ANSWERS.glob("*.json")}
    of_others = {answer for answers, _, _ in OF_OTHERS.values() for answer in answers}
    assert names == {*WEAK, *READABLE, *of_others, "answer_five"}
    origins = {name: read_answer(name).origin for name in names}
    assert all(origin.startswith(("recorded: qwen", "written by hand: ")) for origin in origins.values())
