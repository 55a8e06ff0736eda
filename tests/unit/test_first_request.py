"""An agent's estimate of its first request is the least that the request takes, no matter what its kind and its first
question."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript, base_tokens
from cadre.engine.kind import to_begin
from cadre.prompting.prompts import prompts_for
from cadre.service.agent import prompt_tokens
from cadre.spec.agent import AgentSpec, MemorySpec
from unit.loop.build import SimulatedRun, Toolset


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kind": "code"},
        {"planning_interval": 2},
        {"prompts": "short"},
        {"memory": MemorySpec(recall=3)},
        {"instructions": "Be brief. " * 400},
    ],
)
def test_it_is_less_than_is_sent_and_not_nothing(fields: dict[str, Any]) -> None:
    spec = AgentSpec(name="kid", description="Helps.", **fields)
    prompts = prompts_for(spec)
    least = prompt_tokens(spec, prompts)
    assert 20 < least < base_tokens(to_begin(spec), prompts)
    if spec.memory.recall:
        return
    sim = SimulatedRun(spec, Toolset()).begin("")
    assert sim.run.model is not None
    asked = Transcript(prompts).request(sim.run, sim.run.model.purpose).messages
    characters = sum(len(message["content"]) for message in asked)
    assert 0 <= characters - 5 * least < 5 * len(asked)
