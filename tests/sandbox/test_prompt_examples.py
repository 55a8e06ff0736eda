"""The examples that code agents' models are shown do in the sandbox what the prompt says they do."""

import re
from typing import Any

import pytest

from cadre.kinds.code.section import prompt_terms
from cadre.prompting.prompts import Prompts
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

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ("ask_document", "paint", "translate", "ask_image", "search", "visit_page", "encyclopedia")
FUNCTIONS = [Function(name=name, signature="(**arguments)") for name in NAMES]
VARIABLES = {"letter": "(the letter)", "photo": "(the photo)", "pergunta": "Quantos barcos há no porto?"}

ANSWERS = [
    "a picture",
    9216.0,
    "Cinco: quatro barcos de pesca e um ferry.",
    "The organ of 1788 was ruined by sea water in the flood of 1825; another was built by 1829.",
    "Uppsala: about 177,000 inhabitants, against about 97,000 in Tartu.",
    pytest.approx(7.9789, abs=0.001),
]

RETURNED: dict[str, Any] = {
    "letter": "The old water tower: round, of red brick, with a roof of green copper.",
    "subject=an old": "a picture",
    "text=Quantos": "How many boats lie in the harbour?",
    "question=How many": "Four fishing boats and a ferry.",
    "query=reason": "No results.",
    "query=Norrhamn": "1. Norrhamn parish, the building https://norrhamn.example/church\n"
    "2. Organs of the northern coast https://organs.example/north",
    "url=https://norrhamn": "Welcome.\n\nIn Norrhamn the organ is played on Sundays at ten, and by appointment.",
    "url=https://organs": "Of many places.\n\nNorrhamn: a small organ of 1788, ruined by sea water in the flood"
    " of 1825; the present one is of 1829.",
    "query=Tartu": "Tartu is the second city of Estonia and has about 97,000 inhabitants.",
    "query=Uppsala": "Some 177,000 people live in the city of Uppsala.",
    "subject=Grandma": "Anna Mary Robertson Moses, called Grandma Moses (7 September 1860 to 13 December 1961),"
    " was an American painter …",
}
"""By what stands in the call's arguments."""


TERMS = prompt_terms(AgentSpec(name="a", description="A.", kind="code"))


def examples() -> list[list[tuple[str, str]]]:
    """Of each example the blocks, each with what the prompt says that it prints."""
    system = Prompts.load("code").system([], [], "", TERMS).partition("You have no tools")[0]
    block = re.compile(r"^<code>\n(.*?)\n</code>\n(?:It prints:\n(.*?)\n\n)?", re.MULTILINE | re.DOTALL)
    return [block.findall(example) for example in system.split("\nExample ")[1:]]


def reply(call: FunctionCall) -> CallResult:
    told = " ".join(f"{name}={value}" for name, value in call.arguments.items())
    (value,) = [value for part, value in RETURNED.items() if part in told]
    return CallResult(value=value)


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
    assert sum(len(blocks) for blocks in examples()) == 13
