"""Tests of what the model of a code agent is sent: terms, functions, examples that run, and own files held to the
same."""

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cadre.errors import PromptError
from cadre.kinds.code.records import DECLARATION
from cadre.kinds.code.section import CodeSpec, prompt_terms
from cadre.prompting.prompts import Prompts, prompts_for, to_code_prompt
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.code import BASE_IMPORTS
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from cadre_sandbox.jail import guard

SHIPPED = Path(__file__).parents[3] / "prompts"
SEARCH = ToolCard(
    name="web-search",
    description="Finds pages.",
    input_schema={"properties": {"query": {"type": "string"}}, "required": ["query"]},
    output_schema={"type": "array", "items": {"type": "object", "properties": {"url": {"type": "string"}}}},
)
ANALYST = AgentCard(name="analyst", description="Calculates.")


def terms(code: CodeSpec) -> dict[str, Any]:
    return prompt_terms(AgentSpec(name="a", description="A.", kind="code", **sections(code)))


TERMS = terms(CodeSpec())

KINDS = [name for name in DECLARATION.prompts if name != "browser_code"]


@pytest.fixture(scope="module", params=KINDS)
def prompts(request: pytest.FixtureRequest) -> Prompts:
    return Prompts.load(request.param)


@pytest.fixture
def document() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((SHIPPED / "code.yaml").read_text())
    return data


def own(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_system_prompt_shows_functions_members_imports_and_instructions(prompts: Prompts) -> None:
    text = prompts.system([SEARCH], [ANALYST], "You are the manager of it all.\n", TERMS)
    assert f"\n{to_code_prompt(SEARCH)}\n" in text
    assert "def web_search(query: str) -> list[dict]:" in text
    assert f"\n{to_code_prompt(ANALYST)}\n" in text
    assert f"\n   {', '.join(BASE_IMPORTS)}.\n" in text
    assert text.endswith("You are the manager of it all.")
    for word in ("final_answer(value)", "gather(", ".later", "CallError"):
        assert word in text


def test_the_tags_are_those_of_the_agent() -> None:
    prompts = Prompts.load("code")
    own_terms = terms(CodeSpec(tags=("```py", "```"), imports=["pandas", "math"]))
    text = prompts.system([SEARCH], [], "", own_terms)
    assert "\n```py\n…\n```\n" in text
    assert "<code>" not in text
    assert f"{', '.join([*BASE_IMPORTS, 'pandas'])}." in text
    assert "\n<code>\n…\n</code>\n" in prompts.system([SEARCH], [], "", TERMS)


def test_imports_without_bounds_and_none(prompts: Prompts) -> None:
    assert "every module that is installed" in prompts.system(
        [], [], "", {**TERMS, "authorized_imports": ["math", "*"]}
    )
    assert "cannot import anything" in prompts.system([], [], "", {**TERMS, "authorized_imports": []})


def test_it_is_rendered_once_for_the_same_terms(prompts: Prompts) -> None:
    first = prompts.system([SEARCH], [ANALYST], "", {**TERMS, "authorized_imports": ["re"]})
    assert prompts.system([SEARCH], [ANALYST], "", {**TERMS, "authorized_imports": ["re"]}) is first
    assert prompts.system([SEARCH], [ANALYST], "", {**TERMS, "authorized_imports": ["json"]}) != first


def test_an_agent_without_tools_or_team_reads_nothing_about_them(prompts: Prompts) -> None:
    alone = prompts.system([], [], "", TERMS)
    assert "no tools besides Python itself" in alone
    assert "team" not in alone


def test_a_tool_has_one_name_wherever_the_model_reads_it(prompts: Prompts) -> None:
    twin = msgspec.structs.replace(SEARCH, name="web_search")
    for text in (
        prompts.system([SEARCH, twin], [], "", TERMS),
        prompts.initial_plan("T", [SEARCH, twin], []),
        prompts.update_plan_post("T", [SEARCH, twin], [], 2),
    ):
        assert text.count("def web_search_(") == text.count("def web_search(") == 1


def blocks_in_text(system: str) -> list[str]:
    return re.findall(r"^<code>\n(?!…|def )(.*?)\n</code>$", system, re.MULTILINE | re.DOTALL)


def blocks_in_json(system: str) -> list[str]:
    answers = [json.loads(line) for line in system.splitlines() if line.startswith('{"')]
    assert all(answer.keys() == {"thought", "code"} and answer["thought"] for answer in answers)
    return [answer["code"] for answer in answers]


@pytest.mark.parametrize(("kind", "blocks_of"), [("code", blocks_in_text), ("structured_code", blocks_in_json)])
def test_the_examples_are_code_that_the_sandbox_takes(kind: str, blocks_of: Callable[[str], list[str]]) -> None:
    blocks = blocks_of(Prompts.load(kind).system([SEARCH], [ANALYST], "", TERMS))
    assert len(blocks) == 7
    rules = guard.Rules(BASE_IMPORTS, (), {"final_answer", "gather", "web_search", "analyst"})
    for block in blocks:
        guard.read(block, "<example>", rules)
    assert sum("final_answer(" in block for block in blocks) == 4


def test_both_kinds_show_the_same_examples() -> None:
    texts = [Prompts.load(kind).system([], [], "", TERMS) for kind in KINDS]
    assert blocks_in_text(texts[0]) == blocks_in_json(texts[1])


def test_an_error_says_what_still_holds(prompts: Prompts) -> None:
    assert prompts.error("no column 'x'").startswith("Error: no column 'x'\n")
    assert "variables are there" in prompts.error("x") or "variables set by then are there" in prompts.error("x")


# --- files of one's own


def agent(**fields: Any) -> AgentSpec:
    return AgentSpec(name="coder", description="Codes.", **fields)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (agent(), "tool_calling"),
        (agent(kind="code"), "code"),
        (agent(kind="code", **sections(CodeSpec(structured=True))), "structured_code"),
    ],
)
def test_an_agent_gets_the_prompts_of_its_kind(spec: AgentSpec, kind: str) -> None:
    assert prompts_for(spec).kind == kind
    assert prompts_for(spec).system([], [], "", TERMS) == Prompts.load(kind).system([], [], "", TERMS)


def test_an_own_file_is_that_of_the_agents_kind(tmp_path: Path, document: dict[str, Any]) -> None:
    del document["memory"]
    path = str(own(tmp_path, document))
    mine = prompts_for(agent(kind="code", prompts=path))
    assert mine.kind == "code"
    assert mine.error("x") == Prompts.load("code").error("x") != Prompts.load("tool_calling").error("x")
    with pytest.raises(PromptError, match=r"system_prompt.*'authorized_imports'"):
        prompts_for(agent(prompts=path))
    with pytest.raises(PromptError, match=r"system_prompt.*'calls'"):
        prompts_for(agent(kind="code", prompts=str(SHIPPED / "tool_calling.yaml")))


@pytest.mark.parametrize(
    ("kind", "left_out", "refused"),
    [
        ("code", "code_block_opening_tag", True),
        ("code", "code_block_closing_tag", True),
        ("code", "authorized_imports", True),
        ("code", "tools", True),
        ("code", "managed_agents", True),
        ("structured_code", "managed_agents", True),
        ("structured_code", "code_block_opening_tag", False),
    ],
)
def test_what_code_needs_must_be_shown(
    tmp_path: Path, document: dict[str, Any], kind: str, left_out: str, refused: bool
) -> None:
    variables = DECLARATION.prompts["code"].must.split()
    document["system_prompt"] = " ".join(f"{{{{ {name} }}}}" for name in variables if name != left_out)
    path = own(tmp_path, document)
    complaint = pytest.raises(PromptError, match=rf"system_prompt\b.*'{left_out}'")
    with complaint if refused else nullcontext():
        assert Prompts.load(path, kind).kind == kind


def test_terms_of_an_agent() -> None:
    assert TERMS["authorized_imports"] == BASE_IMPORTS
    assert terms(CodeSpec(imports=["*"]))["authorized_imports"] == [*BASE_IMPORTS, "*"]


def test_an_agent_that_looks_at_a_browser_is_told_how_to_work_there() -> None:
    code = CodeSpec(observe="look", tags=("```py", "```"))
    watching = AgentSpec(name="a", description="A.", kind="code", tools=["look"], **sections(code))
    prompts = prompts_for(watching)
    assert prompts.kind == "browser_code"
    text = prompts.system([SEARCH], [ANALYST], "You buy lamps.", prompt_terms(watching), {"type": "object"})
    assert "Never log in" in text
    assert all(part in text for part in ("def web_search(", "def analyst(", "You buy lamps.", "```py", '{"type"'))
    assert prompts.final_pre() == Prompts.load("code").final_pre()
