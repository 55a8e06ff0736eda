"""Prompts that fill a small context learn of when their agent starts."""

import pytest

from cadre.prompting.prompts import prompts_for
from cadre.service.agent import tight_context
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec


@pytest.mark.parametrize(
    ("context", "prompts", "said"),
    [
        (128_000, None, None),
        (1_200, None, "of the 900 tokens"),
        (1_200, "short", None),
    ],
)
def test_a_context_that_the_prompts_fill(context: int, prompts: str | None, said: str | None) -> None:
    spec = AgentSpec(name="a", description="A.", model=ModelSpec(context=context), prompts=prompts)
    text = tight_context(spec, prompts_for(spec))
    assert text is None if said is None else said in str(text)
