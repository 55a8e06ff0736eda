"""The schema of a solution: small, strict where it can be, and whole."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre.engine.calls.call_schema import call_schema
from cadre.engine.chat import functions
from cadre.engine.context.text_size import tokens_of
from cadre.errors import SpecError
from cadre.kinds.solution.records import ImplicitActivity, SolutionSpec
from cadre.kinds.solution.schema import solution_schema, with_all_required, without_nulls
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.answer_schema import is_strict, misfits
from cadre.spec.kinds import sections
from harness.texts import holds
from kinds.solution.build import ADD, KID, LOOK, asked, solver
from unit.loop.build import Toolset, spec

MONEY = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
    "required": ["amount", "currency"],
    "additionalProperties": False,
}


def taking_money(name: str) -> ToolCard:
    schema = {
        "type": "object",
        "properties": {"sum": {"$ref": "#/$defs/Money", "description": "What is meant."}},
        "required": ["sum"],
        "additionalProperties": False,
        "$defs": {"Money": MONEY},
    }
    return ToolCard(name=name, description="About money.", input_schema=schema)


def test_it_says_what_may_be_proposed() -> None:
    sim = solver(SolutionSpec(implicit={"note": ImplicitActivity(description="Notes.")})).begin()
    schema = solution_schema(sim.run)
    noted = {"name": "note", "arguments": {}, "outcome": "seen"}
    for calls, output in (([LOOK, ADD, KID, noted], None), ([], "done"), ([LOOK], 3)):
        assert misfits(schema, {"solution": {"calls": calls, "output": output}}) == []
    for wrong in (
        {"name": "nobody", "arguments": {}},
        {**LOOK, "arguments": {}},
        {"name": "note", "arguments": {}},
    ):
        assert misfits(schema, {"solution": {"calls": [wrong], "output": None}})
    assert misfits(schema, {"calls": [], "output": None})
    assert is_strict(schema)


def test_the_output_is_that_of_the_agent_or_nothing() -> None:
    schema = {"$ref": "#/$defs/Money", "$defs": {"Money": MONEY}}
    sim = solver(output_schema=schema).begin()
    whole = solution_schema(sim.run)
    for output in (None, {"amount": 1, "currency": "EUR"}):
        assert misfits(whole, {"solution": {"calls": [], "output": output}}) == []
    assert misfits(whole, {"solution": {"calls": [], "output": {"amount": 1}}})
    assert is_strict(whole)


def test_what_is_the_same_is_written_once() -> None:
    toolset = Toolset(
        tools={name: taking_money(name) for name in ("pay", "refund", "reserve")},
        members={name: AgentCard(name=name, description="Helps.") for name in ("ada", "bob", "eve")},
    )
    sim = solver().begin()
    sim.run.tools, sim.run.members = toolset.tools, toolset.members
    schema = solution_schema(sim.run)
    union = schema["properties"]["solution"]["properties"]["calls"]["items"]["anyOf"]
    assert [one["properties"]["name"]["enum"] for one in union] == [
        ["pay", "refund", "reserve"],
        ["ada", "bob", "eve"],
    ]
    assert list(schema["$defs"]) == ["Money"]
    text = msgspec.json.encode(schema).decode()
    assert "description" not in text
    as_functions = tokens_of(msgspec.json.encode(functions(sim.run)).decode())
    assert tokens_of(text) < as_functions / 2, (tokens_of(text), as_functions)
    assert tokens_of(text) < 1.3 * tokens_of(msgspec.json.encode(call_schema(functions(sim.run))).decode())


PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Its name."},
        "country": {"type": "string", "description": "Two letters."},
    },
    "required": ["city", "country"],
    "additionalProperties": False,
}
_SUM = {"sum": {"$ref": "#/$defs/Money", "description": "What is meant."}}
_AT = {"place": {"$ref": "#/$defs/Place", "description": "Where."}}
_PATH = {"path": {"type": "string", "description": "Where it is."}}
_FOUND = {
    "query": {"type": "string", "description": "What is sought."},
    "limit": {"type": "integer", "description": "Most results."},
}
_TEXT = {"content": {"type": "string", "description": "All of it."}}
ALIKE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pay refund reserve release invoice", _SUM),
    ("weather population elevation time_zone currency", _AT),
    ("search_web search_mail search_files search_notes", _FOUND),
    ("read_file open_file delete_file", _PATH),
    ("write_file append_file", _PATH | _TEXT),
    ("ship", _SUM | _AT),
)
"""Names of tools, and what they take."""

UNLIKE = tuple(
    (
        f"tool_{at}",
        {
            f"of_{at}": {"type": "string", "description": "One thing that it needs."},
            f"many_{at}": {"type": "integer", "description": "How many."},
        },
    )
    for at in range(20)
)


def cards_of(groups: tuple[tuple[str, dict[str, Any]], ...]) -> dict[str, ToolCard]:
    found = {}
    for names, properties in groups:
        definitions = {
            name: schema
            for key, name, schema in (("sum", "Money", MONEY), ("place", "Place", PLACE))
            if key in properties
        }
        schema = {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
            **({"$defs": definitions} if definitions else {}),
        }
        for name in names.split():
            about = f"Does {name}, and says what came of it."
            found[name] = ToolCard(name=name, description=about, input_schema=schema)
    return found


@pytest.mark.parametrize(("groups", "most"), [(ALIKE, 0.47), (UNLIKE, 1.55)])
def test_what_it_costs_with_twenty_tools(groups: tuple[tuple[str, dict[str, Any]], ...], most: float) -> None:
    """Estimated tokens, against the tools' own schemas one after the other; never more than as functions of the API."""
    sim = solver().begin()
    sim.run.tools, sim.run.members = cards_of(groups), {}
    assert len(sim.run.tools) == 20
    schema = solution_schema(sim.run)
    assert is_strict(schema)
    own = sum(tokens_of(msgspec.json.encode(one.input_schema).decode()) for one in sim.run.tools.values())
    whole = tokens_of(msgspec.json.encode(schema).decode())
    assert whole < most * own, (whole, own)
    assert whole < tokens_of(msgspec.json.encode(functions(sim.run)).decode())


def test_an_optional_argument_is_required_and_may_be_null() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "at": {"type": "string"},
            "far": {"type": "boolean"},
            "by": {"type": ["string", "null"]},
        },
        "required": ["at"],
        "additionalProperties": False,
    }
    strict = with_all_required(schema)
    assert is_strict(strict)
    assert without_nulls(schema, {"at": "sky", "far": None, "by": None}) == {"at": "sky", "by": None}
    assert with_all_required({**schema, "additionalProperties": True})["required"] == ["at"]


def test_nothing_in_reach_leaves_the_output() -> None:
    sim = solver().begin()
    sim.run.tools, sim.run.members = {}, {}
    schema = solution_schema(sim.run)
    assert misfits(schema, {"solution": {"calls": [], "output": "done"}}) == []
    assert misfits(schema, {"solution": {"calls": [{}], "output": "done"}})


@pytest.mark.parametrize("file", ["solution", "solution_short"])
def test_its_prompts_tell_what_it_may_propose(file: str) -> None:
    section = SolutionSpec(implicit={"note": ImplicitActivity(description="Notes what was seen.")})
    sim = solver(section, instructions="Be kind.", prompts="short" if file.endswith("short") else None)
    system = asked(sim.begin(), file).messages[0]["content"]
    for told in ("- look: Looks.", "- kid: Helps.", "note: Notes what was seen.", "Be kind.", '{"solution"'):
        assert told in system
    assert Prompts.load(file).kind == "solution"


@pytest.mark.parametrize(
    ("section", "key", "named"),
    [
        (SolutionSpec(tries=0), "solution.tries", ["1"]),
        (SolutionSpec(approve="perhaps"), "solution.approve", ["'perhaps'"]),
        (
            SolutionSpec(approve="when: amount > 3"),
            "solution.approve",
            ["amount", "calls", "names", "output", "task"],
        ),
        (SolutionSpec(implicit={"look": ImplicitActivity()}), "solution.implicit", ["look"]),
        (SolutionSpec(implicit={"a b": ImplicitActivity()}), "", ["'a b'"]),
        (
            SolutionSpec(implicit={"n": ImplicitActivity(outcome={"type": "texts"})}),
            "solution.implicit.n.outcome",
            ['"texts"'],
        ),
        (
            SolutionSpec(implicit={"n": ImplicitActivity(arguments={"type": "string"})}),
            "solution.implicit.n.arguments",
            ["object"],
        ),
    ],
)
def test_a_section_that_cannot_hold_is_refused(section: SolutionSpec, key: str, named: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        AgentSpec(name="a", description="A.", kind="solution", tools=["look"], **sections(section))
    assert refused.value.key == key
    assert holds(refused.value.problem, *named)
    assert spec(kind="solution").section(SolutionSpec) is None


def test_its_section_of_a_file_is_read_and_its_keys_are_known(tmp_path: Path) -> None:
    file = tmp_path / "auditor.yaml"
    text = (
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: auditor}\nspec:\n  description: Audits.\n"
        "  kind: solution\n  solution: {approve: always, implicit: {judge: {description: Judges.}}}\n"
    )
    file.write_text(text)
    found = read_agent(file).section(SolutionSpec)
    assert found is not None
    assert found.implicit["judge"].description == "Judges."
    file.write_text(text.replace("{description: Judges.}", "{describes: Judges.}"))
    with pytest.raises(SpecError, match=r"unknown key 'describes' in spec\.solution\.implicit\.judge"):
        read_agent(file)
