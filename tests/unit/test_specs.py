"""What an agent written in Python may be."""

from typing import Any

import pytest

from cadre import serve
from cadre.errors import SpecError
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec, Limits, MemorySpec, Selector
from cadre.spec.model import ModelSpec
from cadre.testing import Team


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
        ({"limits": Limits(away=-1)}, "agent a: limits.away must be at least 0"),
        ({"limits": Limits(away=float("nan"))}, "agent a: limits.away must be at least 0"),
        ({"tools": ["x"], "team": ["x"]}, "agent a: x is named as tool and as team member"),
    ],
)
def test_a_wrong_agent_is_refused_where_it_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "Does things.", **given})
    assert str(caught.value).startswith(message)


WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"permission": "ask", "tools": ["pay"]}, "permission"),
    ({"permission": True}, "permission"),
    ({"kind": "planner"}, "kind"),
    ({"approvals": {"pay": True}, "tools": ["pay"]}, "approvals[...]"),
    ({"timeouts": {"pay": "5"}, "tools": ["pay"]}, "timeouts[...]"),
    ({"provide_run_summary": "no"}, "provide_run_summary"),
    ({"limits": Limits(max_steps="5")}, "limits.max_steps"),  # type: ignore[arg-type]
    ({"limits": Limits(budget={"tokens": "5"})}, "limits.budget.tokens"),  # type: ignore[arg-type]
    ({"memory": MemorySpec(remember="all")}, "memory.remember"),  # type: ignore[arg-type]
    ({"memory": MemorySpec(scope="world")}, "memory.scope"),  # type: ignore[arg-type]
    ({"model": ModelSpec(api="chats")}, "model.api"),  # type: ignore[arg-type]
    ({"model": ModelSpec(fallbacks=[{"name": 5}])}, "model.fallbacks[0].name"),  # type: ignore[list-item]
    ({"team": [{"label": {}}]}, "team[0]"),
    ({"workflow": WorkflowSpec(start="a", steps={"a": {"tool": 5}})}, "workflow.steps[...].tool"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("given", "key"), WRONG_TYPES)
def test_what_no_file_could_say_is_refused_in_python_too(given: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "d", **given})
    assert str(caught.value).startswith(f"agent a: {key}: ")


def test_a_dict_in_the_place_of_a_section_is_read_as_in_a_file() -> None:
    spec = AgentSpec(
        name="a",
        description="d",
        team=[{"labels": {"field": "law"}}],  # type: ignore[list-item]
        limits=Limits(budget={"tokens": 5}),  # type: ignore[arg-type]
    )
    assert (spec.team, spec.limits.budget) == ([Selector({"field": "law"})], Budget(tokens=5))
    with pytest.raises(SpecError, match=r"unknown key 'token' in limits\.budget"):
        AgentSpec(name="a", description="d", limits=Limits(budget={"token": 5}))  # type: ignore[arg-type]


def test_what_was_changed_after_it_was_made_is_refused_where_it_is_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = AgentSpec(name="a", description="d", tools=["pay"])
    spec.approvals["pay"] = "sometimes"
    with pytest.raises(SpecError, match=r"approvals\.pay"):
        Team([spec])
    with pytest.raises(SystemExit) as ended:
        serve(spec)
    assert ended.value.code == 2
    assert "approvals.pay" in capsys.readouterr().err


def test_an_agent_in_its_own_team_needs_leave_to_come_again() -> None:
    with pytest.raises(SpecError, match=r"needs limits\.cycles of at least 1"):
        AgentSpec(name="a", description="d", team=["a"])
    assert AgentSpec(name="a", description="d", team=["a"], limits=Limits(cycles=1)).team == ["a"]
