"""Tests of what an agent written in Python may be."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre import serve
from cadre.errors import SpecError, UnknownOption
from cadre.kinds.code.section import CodeSpec
from cadre.kinds.plan.section import PlanSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec, Limits, MemorySpec, Selector
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import sections
from cadre.spec.model import ModelSpec
from cadre.testing import Team
from harness.texts import holds


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"tools": "search"}, ("tools",)),
        ({"team": "helper"}, ("team",)),
        ({"limits": {"max_steps": 0}}, ("limits.max_steps", 1)),
        ({"limits": 3}, ("limits", "Limits")),
        ({"model": "gpt-x"}, ("model", "ModelSpec")),
        ({"labels": ["x"]}, ("labels", "dict")),
        ({"name": "a b"}, ("'a b'", 64)),
        ({"description": " "}, ("agent a", "description")),
        ({"limits": Limits(away=-1)}, ("limits.away",)),
        ({"limits": Limits(away=float("nan"))}, ("limits.away",)),
        ({"tools": ["x"], "team": ["x"]}, ("agent a: x ",)),
    ],
)
def test_a_wrong_agent_is_refused_where_it_is_made(given: dict[str, Any], parts: tuple[object, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "Does things.", **given})
    assert holds(str(caught.value), *parts)


WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"permission": "ask", "tools": ["pay"]}, "permission"),
    ({"permission": True}, "permission"),
    ({"kind": "planner"}, "kind"),
    ({"approvals": {"pay": True}, "tools": ["pay"]}, "approvals[...]"),
    ({"timeouts": {"pay": "5"}, "tools": ["pay"]}, "timeouts[...]"),
    ({"provide_run_summary": "no"}, "provide_run_summary"),
    ({"team": [{"label": {}}]}, "team[0]"),
    ({"workflow": WorkflowSpec(start="a", steps={"a": {"tool": 5}})}, "workflow.steps[...].tool"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("given", "key"), WRONG_TYPES)
def test_what_no_file_could_say_is_refused_in_python_too(given: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "d", **given})
    assert str(caught.value).startswith(f"agent a: {key}: ")


WRONG_PARTS: list[tuple[Any, dict[str, Any], str]] = [
    (Limits, {"max_steps": "5"}, "Limits.max_steps"),
    (Limits, {"budget": {"tokens": "5"}}, "Limits.budget.tokens"),
    (Limits, {"budget": 0.5}, "Limits.budget"),
    (Limits, {"seconds": "soon"}, "Limits.seconds"),
    (MemorySpec, {"remember": "all"}, "MemorySpec.remember"),
    (MemorySpec, {"scope": "world"}, "MemorySpec.scope"),
    (ModelSpec, {"api": "chats"}, "ModelSpec.api"),
    (ModelSpec, {"temperature": "hot"}, "ModelSpec.temperature"),
    (ModelSpec, {"fallbacks": [{"name": 5}]}, "ModelSpec.fallbacks[0].name"),
    (ModelSpec, {"price": {"input": 1}}, "ModelSpec.price"),
    (Budget, {"cost": "0.5"}, "Budget.cost"),
    (Selector, {"labels": "x"}, "Selector.labels"),
]


@pytest.mark.parametrize(("part", "given", "key"), WRONG_PARTS)
def test_a_part_of_an_agent_is_checked_where_it_is_made(part: Any, given: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        part(**given)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("part", "given", "meant"),
    [
        (Limits, {"max_stepz": 3}, "max_steps"),
        (Limits, {"budget": {"usd": 1}}, "cost"),
        (Budget, {"usd": 0.5}, "cost"),
        (ModelSpec, {"temprature": 0.2}, "temperature"),
        (ModelSpec, {"fallbacks": [{"nam": "x"}]}, "name"),
        (AgentSpec, {"system_prompt": "Be brief."}, "instructions"),
        (AgentSpec, {"limits": {"max_stepz": 3}}, "max_steps"),
        (AgentSpec, {"code": {"import": ["csv"]}}, "imports"),
    ],
)
def test_an_option_that_there_is_not_is_refused_with_those_that_there_are(
    part: Any, given: dict[str, Any], meant: str
) -> None:
    with pytest.raises(UnknownOption) as caught:
        part(**given)
    assert isinstance(caught.value, TypeError)
    assert f"{meant!r}" in str(caught.value)
    assert f" {meant}" in str(caught.value).partition("takes")[2]


def test_parts_take_lengths_of_time_as_files_do() -> None:
    assert Limits(seconds="10m") == Limits(seconds=timedelta(minutes=10)) == Limits(seconds=600.0)  # type: ignore[arg-type]
    assert ModelSpec(timeout="90s").timeout == 90.0  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [Limits, Budget, ModelSpec, MemorySpec])
def test_parts_are_made_by_the_names_of_their_options(part: Any) -> None:
    with pytest.raises(UnknownOption):
        part("x")


def test_an_agent_says_what_it_lacks() -> None:
    with pytest.raises(UnknownOption, match="description"):
        AgentSpec(name="a")  # type: ignore[call-arg]


def test_a_dict_in_the_place_of_a_section_is_read_as_in_a_file() -> None:
    spec = AgentSpec(
        name="a",
        description="d",
        team=[{"labels": {"field": "law"}}],  # type: ignore[list-item]
        limits=Limits(budget={"tokens": 5}),  # type: ignore[arg-type]
    )
    assert (spec.team, spec.limits.budget) == ([Selector({"field": "law"})], Budget(tokens=5))


def test_the_kinds_sections_are_a_list_however_they_are_written(tmp_path: Path) -> None:
    code, plan = CodeSpec(imports=["csv"]), PlanSpec(execute=True)
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\n"
        "spec: {description: d, kind: code, plan: {execute: true}, code: {imports: [csv]}}\n"
    )
    fields: dict[str, Any] = {"name": "a", "description": "d", "kind": "code"}
    made = [
        read_agent(file),
        AgentSpec(**fields, **sections(plan, code)),
        AgentSpec(**fields, code=code, plan=plan),  # type: ignore[call-arg]
        AgentSpec(**fields, sections=[{"kind": "code", "imports": ["csv"]}, plan]),  # type: ignore[list-item]
    ]
    written = [{"kind": "code", "imports": ["csv"]}, {"kind": "plan", "execute": True}]
    for spec in made:
        assert msgspec.to_builtins(spec) == fields | {"sections": written}
        assert msgspec.json.decode(msgspec.json.encode(spec), type=AgentSpec) == spec
        assert (spec.section(CodeSpec), spec.section(PlanSpec)) == (code, plan)
        assert spec.section(WorkflowSpec) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"code": PlanSpec()}, "agent a: write code as a CodeSpec"),
        ({"sections": CodeSpec()}, "agent a: write sections as a list"),
        ({"sections": [CodeSpec(), CodeSpec()]}, "agent a: sections: code stands there twice"),
        ({"sections": [CodeSpec()], "code": CodeSpec()}, "agent a: sections: code stands there twice"),
        ({"sections": [Limits()]}, "agent a: sections: no kind has"),
        ({"sections": [{"kind": "mime"}]}, "agent a: sections: "),
        ({"sections": [{"kind": "code", "import": []}]}, "agent a: unknown key 'import' in code"),
        ({"sections": [{"kind": "code", "imports": "csv"}]}, "agent a: code.imports: "),
    ],
)
def test_a_section_that_no_file_could_have_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        AgentSpec(**{"name": "a", "description": "d", **given})
    assert str(caught.value).startswith(message)


def test_a_file_has_no_list_of_sections(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec: {description: d, sections: [{kind: code}]}\n"
    )
    with pytest.raises(SpecError, match=r"unknown key 'sections' in spec; known keys: .*\bcode\b"):
        read_agent(file)


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
    with pytest.raises(SpecError, match=r"limits\.cycles"):
        AgentSpec(name="a", description="d", team=["a"])
    assert AgentSpec(name="a", description="d", team=["a"], limits=Limits(cycles=1)).team == ["a"]
