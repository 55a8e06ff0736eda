"""What an agent written in Python may be."""

from typing import Any

import pytest

from cadre.errors import SpecError
from cadre.spec.agent import AgentSpec, Limits


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tools": "search"}, "agent a: write tools as a list"),
        ({"team": "helper"}, "agent a: write team as a list"),
        ({"limits": {"max_steps": 3}}, "agent a: write limits as a Limits"),
        ({"model": "gpt-x"}, "agent a: write model as a ModelSpec"),
        ({"labels": ["x"]}, "agent a: write labels as a dict"),
        ({"name": "a b"}, "agent name 'a b': use 1 to 64 of the letters"),
        ({"description": " "}, "agent a: write a description"),
        ({"tools": ["x"], "team": ["x"]}, "agent a: x is named as tool and as team member"),
    ],
)
def test_a_wrong_agent_is_refused_where_it_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "Does things.", **given})
    assert str(caught.value).startswith(message)


def test_an_agent_in_its_own_team_needs_leave_to_come_again() -> None:
    with pytest.raises(SpecError, match=r"needs limits\.cycles of at least 1"):
        AgentSpec(name="a", description="d", team=["a"])
    assert AgentSpec(name="a", description="d", team=["a"], limits=Limits(cycles=1)).team == ["a"]
