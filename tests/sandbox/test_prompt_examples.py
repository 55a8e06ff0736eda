"""The examples that code agents' models are shown do in the sandbox what the prompt says they do."""

import re

import pytest

from cadre.kinds.code.section import prompt_terms
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import ToolCard
from cadre.spec.agent import AgentSpec
from cadre_sandbox.interpreters.contract import (
    BlockRequest,
    CallResult,
    Finished,
    Function,
    FunctionCall,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.wire.values import Value

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARDS = [
    ToolCard(
        name=name,
        description="Finds.",
        input_schema={"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    )
    for name in ("count_of", "side_of")
]
FUNCTIONS = [Function(name=card.name, signature="(place)") for card in CARDS]
VARIABLES: dict[str, Value] = {
    "orders": [
        {"fruit": "apple", "count": 12},
        {"fruit": "pear", "count": 7},
        {"fruit": "apple", "count": 3},
    ]
}
ANSWERS = [9216.0, 15, 634, "The number is 317, and it is in the north."]
RETURNED = {"count_of": "The number is 317.", "side_of": "It is in the north."}


TERMS = prompt_terms(AgentSpec(name="a", description="A.", kind="code"))


def examples() -> list[list[tuple[str, str]]]:
    """Of each example the blocks, each with what the prompt says that it prints."""
    system = Prompts.load("code").system(CARDS, [], "", TERMS).partition("You have these tools")[0]
    block = re.compile(r"^<code>\n(.*?)\n</code>\n(?:It prints:\n(.*?)\n\n)?", re.MULTILINE | re.DOTALL)
    return [block.findall(example) for example in system.split("\nExample ")[1:]]


def reply(call: FunctionCall) -> CallResult:
    return CallResult(value=RETURNED[call.name])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("number", range(len(ANSWERS)))
async def test_an_example(sandbox: Sandbox, number: int) -> None:
    session = await sandbox.open()
    outcomes: list[Finished] = []
    try:
        for code, prints in examples()[number]:
            outcome = await session.execute(BlockRequest(code=code, functions=FUNCTIONS, variables=VARIABLES))
            while isinstance(outcome, Yielded):
                outcome = await session.resume([reply(call) for call in outcome.calls])
            assert isinstance(outcome, Finished), outcome
            assert words(outcome.logs) == words(prints)
            outcomes.append(outcome)
    finally:
        await session.close()
    assert [outcome.is_final_answer for outcome in outcomes].index(True) == len(outcomes) - 1
    assert outcomes[-1].output == ANSWERS[number]


async def test_every_example_is_played() -> None:
    assert len(examples()) == len(ANSWERS)
    assert sum(len(blocks) for blocks in examples()) == 7
