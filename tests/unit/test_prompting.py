"""The shipped prompts say what models rely on; a wrong prompt file is refused with file, key and variable."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.errors import PromptError
from cadre.kinds.tool_calling.kind import STOP_SEQUENCES
from cadre.prompting.prompts import Prompts, to_code_prompt, to_tool_calling_prompt
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of

SHIPPED = Path(__file__).parents[2] / "prompts" / "tool_calling.yaml"

SEARCH = ToolCard(
    name="search",
    description="Finds paragraphs.\n\nReturns: the best first",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words."},
            "limit": {"type": "integer", "default": 5},
            "language": {"type": "string"},
        },
        "required": ["query"],
    },
    output_schema={"type": "array", "items": {"type": "string"}},
)
ANALYST = AgentCard(name="analyst", description="Calculates.")


WRITTEN = {"tool_calling": to_tool_calling_prompt, "code": to_code_prompt, "structured_code": to_code_prompt}
TOOL_CALLING = Prompts.load("tool_calling")
CODER = AgentSpec(name="a", description="A.", kind="code")
TERMS = facts_of(CODER).terms()
"""An agent that calls tools has none, and does not mind."""


@pytest.fixture(scope="module", params=WRITTEN)
def prompts(request: pytest.FixtureRequest) -> Prompts:
    return Prompts.load(request.param)


@pytest.fixture
def document() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    return data


def load(tmp_path: Path, document: object) -> Prompts:
    path = tmp_path / "mine.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return Prompts.load(path)


def test_a_tool_is_written_out_with_inputs_and_output() -> None:
    *told, takes, returns = to_tool_calling_prompt(SEARCH).splitlines()
    assert told == ["search: Finds paragraphs.", "", "  Returns: the best first"]
    assert json.loads(takes.partition(": ")[2]) == {
        "query": {"type": "string", "description": "Words."},
        "limit": {"type": "integer", "default": 5},
        "language": {"type": "string", "optional": True},
    }
    assert json.loads(returns[returns.index("{") :]) == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "any"),
        ({"type": "string"}, "string"),
        ({"type": ["number", "null"]}, "number or null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null, as"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {}}}}, "object, as"),
    ],
)
def test_the_output_type_is_named(schema: dict[str, Any] | None, says: str) -> None:
    card = ToolCard(name="t", description="d", input_schema={}, output_schema=schema)
    last = to_tool_calling_prompt(card).splitlines()[-1]
    assert str(says) in last


def test_the_system_prompt_shows_tools_members_and_instructions() -> None:
    shown = {"calls": "schema"}
    text = TOOL_CALLING.system([SEARCH], [ANALYST], "You are the manager of it all.\n", shown)
    assert f"- {to_tool_calling_prompt(SEARCH)}\n" in text
    assert f"- {to_tool_calling_prompt(ANALYST)}\n" in text
    assert text.endswith("You are the manager of it all.")
    assert "final_answer" in text


def test_tools_and_members_of_native_calls_are_left_to_the_request() -> None:
    text = TOOL_CALLING.system([SEARCH], [ANALYST], "", {"calls": "native"})
    assert ANALYST.name in text
    assert not [card for card in (SEARCH, ANALYST) if card.description in text]


def test_an_agent_without_a_team_reads_nothing_about_teams(prompts: Prompts) -> None:
    alone = prompts.system([SEARCH], [], "", TERMS)
    assert "team" not in alone.replace("steam", "").lower()
    assert alone == prompts.system([SEARCH], [], "   ", TERMS)


def test_a_task_is_shown_as_it_is_even_if_it_looks_like_a_template(prompts: Prompts) -> None:
    task = "Explain {{ 7 * 7 }} & <b>{% for %}</b>"
    for text in (
        prompts.initial_plan(task, [], []),
        prompts.managed_task("analyst", task),
        prompts.final_post(task),
    ):
        assert task in text


def test_plans_ask_for_the_known_headings(prompts: Prompts) -> None:
    first, given = (
        prompts.initial_plan("T", [SEARCH], [ANALYST]),
        ["1.1. Facts given", "1.2. Facts to look up"],
    )
    later, learned = (
        prompts.update_plan_post("T", [SEARCH], [ANALYST], 13),
        ["1.2. Facts that we have learned"],
    )
    write = WRITTEN[prompts.kind]
    for heading in ("1. Facts survey", *given, "1.3. Facts to derive", "2. Plan"):
        assert heading in first
    for heading in (
        *learned,
        "1.3. Facts still to",
        "1.4. Facts still to derive",
        "2. Plan",
        "13 steps remain",
    ):
        assert heading in later
    for text in (first, later):
        assert "<end_plan>" in text
        assert write(SEARCH) in text
        assert write(ANALYST) in text


def test_a_member_is_asked_for_three_parts(prompts: Prompts) -> None:
    text = prompts.managed_task("analyst", "Add it up.")
    assert "'analyst'" in text
    for heading in ("1. Task outcome (short", "2. Task outcome (extremely detailed", "3. Additional context"):
        assert heading in text


def test_a_report_holds_text_as_it_is_and_values_as_json(prompts: Prompts) -> None:
    assert prompts.managed_report("analyst", "Ten: 10").endswith("\nTen: 10")
    assert prompts.managed_report("analyst", {"ten": [10, None]}).endswith('{"ten": [10, null]}')


def test_the_texts_of_a_runs_memory(prompts: Prompts) -> None:
    assert prompts.new_task("Count.") == "New task:\nCount."
    assert prompts.error("no column 'x'").startswith("Error: no column 'x'\n")
    assert prompts.plan("1. Look.", first=True) != prompts.plan("1. Look.", first=False)
    assert "1. Look." in prompts.plan("1. Look.", first=False)


def test_no_prompt_holds_what_stops_the_model(prompts: Prompts) -> None:
    assert not [stop for stop in STOP_SEQUENCES if stop in prompts.system([SEARCH], [ANALYST], "x", TERMS)]


def test_a_file_may_leave_out_the_memory_texts(tmp_path: Path, document: dict[str, Any]) -> None:
    del document["memory"]
    document["managed_agent"]["report"] = "{{ name }} says {{ final_answer }}"
    mine = load(tmp_path, document)
    assert mine.error("x") == TOOL_CALLING.error("x")
    assert mine.managed_report("analyst", "ten") == "analyst says ten"


@pytest.mark.parametrize(
    ("place", "template", "complaint"),
    [
        ("planning.initial_plan", "{{ taks }}", "'taks'"),
        ("planning.initial_plan", "{{ task }}", "'managed_agents'"),
        ("managed_agent.task", "Do it, {{ name }}!", "'task'"),
        ("managed_agent.report", "{{ final_answer", "line 1: "),
        ("managed_agent.report", "{{ final_answer.x }}", "does not render: "),
        ("final_answer.pre_messages", "{{ task }}", "'task'; it may use: none"),
        ("final_answer.post_messages", "{{ task + 1 }}", "does not render: "),
        ("final_answer.post_messages", "{% if 0 %}{{ task }}{% endif %}", "'task'"),
        ("memory.error", "{{ error | shout }}", "line 1: No filter named 'shout'"),
        (
            "planning.update_plan_post_messages",
            "{remaining_steps}",
            "'managed_agents'",
        ),
        (
            "managed_agent.report",
            "{{ final_answer.__class__.__mro__ }}",
            "does not render: access to attribute '__class__'",
        ),
        ("managed_agent.task", 7, "text, not int"),
        ("managed_agent.tsak", "x", "the keys are system_prompt, "),
    ],
)
def test_a_wrong_template_is_refused(
    tmp_path: Path, document: dict[str, Any], place: str, template: object, complaint: str
) -> None:
    section, _, key = place.partition(".")
    document[section][key] = template
    with pytest.raises(PromptError) as caught:
        load(tmp_path, document)
    assert re.search(f"mine.yaml: .*{place}.*{re.escape(complaint)}", str(caught.value), re.DOTALL)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{% if not tools %}{{ toolz }}{% endif %}", "unknown variable 'toolz'"),
        ("{% for t in tools %}{{ t.nmae }}{% endfor %}", "no attribute 'nmae'"),
        ("{{ tools[0].name }}", "system_prompt does not render"),
    ],
)
def test_a_branch_that_only_some_agents_enter_is_checked_too(
    tmp_path: Path, document: dict[str, Any], template: str, complaint: str
) -> None:
    document["system_prompt"] = "{{ custom_instructions }}" + template
    with pytest.raises(PromptError, match=complaint):
        load(tmp_path, document)


def test_the_same_wrong_template_is_refused_wherever_it_stands(tmp_path: Path, document: dict[str, Any]) -> None:
    document["memory"]["plan"] = "{{ nobody }}"
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        with pytest.raises(PromptError, match=rf"{name}/mine\.yaml: memory\.plan .*'nobody'"):
            load(tmp_path / name, document)


def test_a_missing_key_is_named(tmp_path: Path, document: dict[str, Any]) -> None:
    del document["planning"]["initial_plan"]
    with pytest.raises(PromptError, match=r"mine\.yaml: the key planning\.initial_plan is missing"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not YAML"),
        ("- a", "a mapping"),
        ("", "a mapping"),
        ("planning: soon", "unknown key 'planning'"),
    ],
)
def test_a_file_that_is_no_prompt_file(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint):
        load(tmp_path, text)


def test_what_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"agent kind 'coder': choose one of .*tool_calling"):
        Prompts.load("coder")
    with pytest.raises(PromptError, match=r"none\.yaml: cannot be read: No such file"):
        Prompts.load(str(tmp_path / "none.yaml"))
