"""The short form of the shipped prompts: how long it is, what it still says, and how an agent takes it."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cadre.engine.context.text_size import tokens_of
from cadre.kinds.code.section import CodeSpec
from cadre.prompting.prompts import Prompts, kind_for, prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import facts_of, sections
from cadre.spec.model import ModelSpec
from unit.test_agent_file import HEAD
from unit.test_prompting import ANALYST, SEARCH

MOST_TOKENS = 400


def agent(**fields: Any) -> AgentSpec:
    return AgentSpec(name="a", description="A.", prompts="short", **fields)


AGENTS = {
    "native": agent(),
    "schema": agent(model=ModelSpec(calls="schema")),
    "text": agent(model=ModelSpec(calls="text")),
    "code": agent(kind="code"),
    "structured": agent(kind="code", **sections(CodeSpec(structured=True))),
}
SECOND = SEARCH.__class__(name="lookup", description="Looks up.", input_schema=SEARCH.input_schema)


def system(spec: AgentSpec, *args: Any) -> str:
    terms = facts_of(spec).terms()
    tools, members, instructions, schema = args
    return prompts_for(spec).system(tools, members, instructions, terms, schema)


@pytest.mark.parametrize("spec", AGENTS.values(), ids=AGENTS)
def test_it_is_short_and_says_what_there_is(spec: AgentSpec) -> None:
    text = system(spec, [SEARCH, SECOND], [], "", None)
    # That of code agents holds an example of a step and its answer, and has room for one tool less.
    shortest = system(spec, [SECOND], [], "", None) if spec.kind == "code" else text
    assert tokens_of(shortest) <= MOST_TOKENS
    assert "final_answer" in text
    assert "team" not in text.lower()
    if spec.kind == "code" or spec.model.calls != "native":
        assert "search" in text
        assert "lookup" in text
    whole = system(spec, [SEARCH], [ANALYST], "Be kind.", {"type": "integer"})
    for said in ("analyst", "Be kind.", '{"type": "integer"}'):
        assert said in whole


@pytest.mark.parametrize("prompts", ["short", None], ids=["short", "long"])
@pytest.mark.parametrize("form", ["code", "structured"])
@pytest.mark.parametrize(
    ("tools", "members", "called"),
    [([SECOND], [], {"lookup"}), ([], [ANALYST], {"analyst"}), ([], [], set())],
    ids=["a tool", "a member", "neither"],
)
def test_examples_of_code_call_what_is_there(
    prompts: str | None, form: str, tools: list[Any], members: list[Any], called: set[str]
) -> None:
    text = system(replace(AGENTS[form], prompts=prompts), tools, members, "", None)
    example = text.partition("xample")[2].partition("You have ")[0].replace("\\n", " ")
    found = {*re.findall(r"\b([a-z_]+)\((?=[a-z]+=)", example)}
    assert found == called
    assert {*re.findall(r"\b([a-z_]+)\(", example)} <= called | {"print", "final_answer", "len", "sum"}


@pytest.mark.parametrize("calls", ["schema", "text"])
@pytest.mark.parametrize("kind", ["tool_calling", "solution"])
@pytest.mark.parametrize(
    ("tools", "members", "called"),
    [([SECOND], [], {"lookup"}), ([], [ANALYST], {"analyst"}), ([], [], set())],
    ids=["a tool", "a member", "neither"],
)
def test_examples_of_calls_call_what_is_there(
    kind: str, calls: Any, tools: list[Any], members: list[Any], called: set[str]
) -> None:
    spec = AgentSpec(name="a", description="A.", kind=kind, model=ModelSpec(calls=calls))
    text = system(spec, tools, members, "", None)
    assert {*re.findall(r'"name": "(\w+)"', text)} - {"final_answer"} == called


@pytest.mark.parametrize("spec", AGENTS.values(), ids=AGENTS)
def test_the_rest_is_short_or_that_of_the_long_form(spec: AgentSpec) -> None:
    short, long = prompts_for(spec), Prompts.load(kind_for(spec))
    assert short.kind == long.kind
    assert short.error("x") == long.error("x")
    for plan in (
        short.initial_plan("The task", [SEARCH], [ANALYST]),
        short.update_plan_post("", [SEARCH], [ANALYST], 3),
    ):
        assert tokens_of(plan) <= MOST_TOKENS / 2
        for said in ("search", "analyst", "<end_plan>"):
            assert said in plan


def test_an_agent_file_names_it(tmp_path: Path) -> None:
    """A file of one's own of that name is named by a path."""
    file = tmp_path / "a.yaml"
    file.write_text(f"{HEAD}  prompts: short\n")
    assert read_agent(file).prompts == "short"
    file.write_text(f"{HEAD}  prompts: ./short\n")
    assert read_agent(file).prompts == str(tmp_path / "short")
