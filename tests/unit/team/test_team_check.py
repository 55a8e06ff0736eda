"""`cadre check`: what does not hold between the files of a team."""

import asyncio
import functools
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from cadre.cli.main import group
from cadre.cli.team.up import command as up
from cadre.engine.contract import contract_problems
from cadre.errors import CadreError
from cadre.local.service_check import isolation_tier
from cadre.local.team_check import FileProblem, check_files
from cadre.protocol.cards import ToolCard
from cadre.spec.agent_file import read_agent
from cadre.spec.contract import TeamReach
from cadre.tools.loading import load_tools
from harness.texts import holds

HEAD = "apiVersion: cadre.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
TOOLS = '''
from typing import TypedDict
from cadre.tool import tool

print("this is no card")


class Order(TypedDict):
    id: int
    lines: list[str]


@tool(read_only=True)
def look(order: int, deep: bool = False) -> Order:
    """Looks.

    Args:
        order: Its number.
        deep: Whether all of it.
    """
    return {"id": order, "lines": []}


@tool(read_only=True)
def spell(answer: str) -> bool:
    """Spells.

    Args:
        answer: The answer.
    """
    return True
'''
JUDGE = """\
description: Judges.
output_schema: {type: object, required: [grade], properties: {grade: {enum: [good, bad]}, why: {type: string}}}
"""
CLERK = """\
description: Books.
input_schema:
  type: object
  properties: {city: {type: string}, nights: {type: integer, minimum: 1}}
  required: [city]
  additionalProperties: false
output_schema: {type: object, required: [total], properties: {total: {type: number}}}
"""
SUB = """\
description: Reads an order.
kind: workflow
workflow: {start: a, steps: {a: {end: "{{ inputs.order }} {{ inputs.note | default('') }}"}}}
"""
FREE = "description: Answers as it likes."
FLOW = """\
description: Leads.
kind: workflow
tools: [look]
team: [judge, sub, free]
workflow:
  start: look
  steps:
    look: {tool: {name: look, arguments: {order: 7}}, next: judge}
    judge:
      agent: {name: judge, task: "Judge {{ look.id }}"}
      when: [{if: 'judge.grade == "good"', next: sub}]
      next: free
    sub: {agent: {name: sub, task: go, inputs: {order: "{{ look.id }}"}}}
    free: {agent: {name: free, task: go}, next: lines}
    lines: {each: {items: "{{ look.lines }}", step: line}}
    line: {end: "{{ item.upper() }}"}
"""


def write(folder: Path, name: str, kind: str, spec: str) -> None:
    body = "".join(f"  {line}\n" for line in spec.splitlines())
    (folder / f"{name}.yaml").write_text(HEAD.format(kind=kind, name=name) + body)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    for name, spec in (("flow", FLOW), ("judge", JUDGE), ("sub", SUB), ("free", FREE)):
        write(tmp_path, name, "Agent", spec)
    (tmp_path / "tools.py").write_text(TOOLS)
    write(tmp_path, "team", "Team", "agents: [flow.yaml, judge.yaml, sub.yaml, free.yaml]\ntools: [tools.py]\n")
    return tmp_path


def lines(problems: list[FileProblem]) -> list[str]:
    return [f"{one.level} {Path(one.file).name} {one.path}: {one.text}" for one in problems]


@functools.cache
def tools() -> dict[str, ToolCard]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tools.py").write_text(TOOLS)
        return {tool.name: tool.card for tool in load_tools(f"{folder}/tools.py")}


def expectations(team: Path, name: str, files: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return what the agent of that name expects in vain; `files` are those of agents that have another name."""
    names = {one: one for one in ("flow", "judge", "sub", "free") if one not in files.values()} | dict(files)
    agents = {one: read_agent(team / f"{file}.yaml") for one, file in names.items()}
    found = contract_problems(agents[name], TeamReach(tools=tools(), agents=agents))
    return [f"{one.level} {one.path}: {one.text}" for one in found]


def test_a_team_that_holds_together(team: Path) -> None:
    assert check_files(team) == []
    done = CliRunner().invoke(group, ["check", str(team)], standalone_mode=False)
    assert (done.return_value, done.output) == (0, f"{team}: all is well\n")


FLOWS = [
    (
        "judge.grade ==",
        "judge.verdict ==",
        "error",
        "judge.when: reads judge.verdict, which the output_schema of agent judge",
    ),
    ('== "good"', '== "yes"', "error", "judge.when: compares judge.grade with 'yes', which it never is"),
    ('== "good"', 'in ["yes", "ok"]', "error", "judge.when: compares judge.grade with 'yes' or 'ok'"),
    (
        "judge.grade ==",
        "judge.why ==",
        "warning",
        "judge.when: reads judge.why, which the output_schema of agent judge does not",
    ),
    ("judge.grade ==", "judge.why | default(0) ==", "", ""),
    ("judge.grade ==", "judge.why is defined and judge.why ==", "", ""),
    (
        "order: 7",
        "ordr: 7",
        "error",
        "look.tool.arguments.ordr: the tool look takes no 'ordr'; it takes order, deep",
    ),
    ("order: 7", "deep: true", "error", "look.tool.arguments: the tool look needs order"),
    (
        "order: 7",
        "order: x",
        "error",
        'look.tool.arguments.order: does not fit the tool look: "x" is not of type "integer"',
    ),
    (
        "Judge {{ look.id",
        "Judge {{ look.ids",
        "error",
        "judge.agent.task: reads look.ids, which the output_schema of tool look",
    ),
    (
        "item.upper()",
        "item.name",
        "error",
        "line.end.output: reads item.name, which the output_schema of tool look",
    ),
    (
        '{order: "',
        '{ordre: "',
        "error",
        "sub.agent.inputs: agent sub reads order of its inputs",
    ),
    (
        '{order: "',
        '{more: 1, order: "',
        "warning",
        "sub.agent.inputs.more: agent sub does not read 'more'",
    ),
    (
        "task: go}, next: lines",
        "task: go}, when: [{if: free.x, next: lines}]",
        "warning",
        "free.when: reads free.x, and nothing says",
    ),
    (
        "tools: [look]",
        "tools: [look, lok]",
        "missing",
        "spec.tools[1]: no tool 'lok' is offered here; there are ",
    ),
    (
        "sub, free]",
        "sub, free, nobody]",
        "missing",
        "spec.team[3]: no agent here has the name nobody; there are flow, free",
    ),
    (
        "sub, free]",
        "sub, free, {labels: {a: b}}]",
        "missing",
        "spec.team[3]: no agent here has the labels a=b",
    ),
]


@pytest.mark.parametrize(("old", "new", "level", "text"), FLOWS)
def test_what_a_workflow_expects(team: Path, old: str, new: str, level: str, text: str) -> None:
    assert old in FLOW
    write(team, "flow", "Agent", FLOW.replace(old, new))
    found = expectations(team, "flow")
    if not level:
        assert found == []
        return
    place = "" if text.startswith("spec.") else "spec.workflow.steps."
    assert any(one.startswith(f"{level} {place}{text}") for one in found), found


PLAN = """\
description: Plans.
kind: KIND
tools: [look]
team: [judge, sub]
plan:
  execute: true
  steps:
    - {action: look, args: {order: 7}, needs: []}
    - {action: judge, task: "Judge {{ step_1.id }}", details: "{{ step_1.lines[0] }}"}
    - {action: sub, task: Go., args: {order: "{{ step_1.id }}"}, needs: []}
    - {task: "Write of {{ step_2.grade }} and {{ step_3.any }}.", needs: [2, 3]}
  result: "{{ step_2.grade }}: {{ result }}"
"""


@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("order: 7", "order: seven", "steps[0].args.order: "),
        ("order: 7", "deep: true", "steps[0].args: the tool look needs order: add it"),
        (
            "order: 7",
            "order: 7, by: x",
            "steps[0].args.by: the tool look takes no 'by'; it takes order, deep",
        ),
        (
            "Judge {{ step_1.id",
            "Judge {{ step_1.name",
            "steps[1].task: reads step_1.name, which the output_schema",
        ),
        ("step_1.lines[0]", "step_1.lines.x", "steps[1].details: reads step_1.lines.x"),
        ('{order: "', '{ordre: "', "steps[2].args: agent sub reads order of its inputs"),
        (
            "of {{ step_2.grade",
            "of {{ step_2.mark",
            "steps[3].task: reads step_2.mark, which the output_schema",
        ),
        ('"{{ step_2.grade', '"{{ step_2.mark', "result: reads step_2.mark"),
    ],
)
def test_what_a_given_plan_expects(team: Path, kind: str, old: str, new: str, text: str) -> None:
    plan = PLAN.replace("KIND", kind).replace("  execute: true\n", "" if kind == "plan" else "  execute: true\n")
    assert old in plan
    write(team, "flow", "Agent", plan)
    assert expectations(team, "flow") == [
        one for one in expectations(team, "flow") if one.startswith("warning spec.plan.steps[3].task: reads step_3.any")
    ]
    write(team, "flow", "Agent", plan.replace(old, new))
    found = expectations(team, "flow")
    assert any(one.startswith(f"error spec.plan.{text}") for one in found), found


DELEGATIONS = [
    ("{city: Oslo, nights: 2}", "", ""),
    ('{city: "{{ look.id }}"}', "", ""),
    ("{city: 5}", "error", ".city: does not fit agent clerk: 5 is not of type"),
    ("{city: Oslo, nights: 0}", "error", ".nights: does not fit agent clerk: 0 is less than"),
    ("{nights: 2}", "error", ": agent clerk needs city of its inputs"),
    ("{city: Oslo, nihgts: 2}", "error", ".nihgts: agent clerk takes no 'nihgts'; it takes city, nights"),
]
FLOW_TO_CLERK = """\
description: Leads.
kind: workflow
tools: [look]
team: [clerk]
workflow:
  start: look
  steps:
    look: {tool: {name: look, arguments: {order: 7}}, next: book}
    book: {agent: {name: clerk, task: Book., inputs: INPUTS}, next: end}
    end: {end: "{{ book.total }}"}
"""
PLAN_TO_CLERK = """\
description: Leads.
kind: plan
team: [clerk]
plan:
  steps:
    - {action: clerk, task: Book., args: INPUTS}
"""


@pytest.mark.parametrize(("inputs", "level", "text"), DELEGATIONS)
def test_what_a_member_takes_and_a_manager_gives(team: Path, inputs: str, level: str, text: str) -> None:
    write(team, "free", "Agent", CLERK)
    (team / "free.yaml").write_text((team / "free.yaml").read_text().replace("name: free", "name: clerk"))
    for written, key in (
        (FLOW_TO_CLERK, "workflow.steps.book.agent.inputs"),
        (PLAN_TO_CLERK, "plan.steps[0].args"),
    ):
        write(team, "flow", "Agent", written.replace("INPUTS", inputs.replace("look.id", "task")))
        found = expectations(team, "flow", {"clerk": "free"})
        assert [one for one in found if not one.startswith(f"{level} spec.{key}{text}")] == []
        assert len(found) == bool(level)


def test_what_a_manager_reads_of_a_members_answer_and_asks_about_its_call(team: Path) -> None:
    write(team, "free", "Agent", CLERK)
    (team / "free.yaml").write_text((team / "free.yaml").read_text().replace("name: free", "name: clerk"))
    flow = FLOW_TO_CLERK.replace("INPUTS", "{city: Oslo}").replace("book.total", "book.sum")
    flow += "approvals: {clerk: 'when: nihgts > 2'}\n"
    write(team, "flow", "Agent", flow)
    levels = {one.partition(":")[0] for one in expectations(team, "flow", {"clerk": "free"})}
    assert levels == {"error spec.workflow.steps.end.end.output", "warning spec.approvals.clerk"}


def test_an_agent_that_reads_what_its_own_input_schema_lacks(team: Path) -> None:
    held = "input_schema: {type: object, properties: {ordr: {type: integer}}}\n"
    write(team, "sub", "Agent", SUB + held)
    paths = [one.partition(": ")[0] for one in expectations(team, "sub")]
    assert paths == ["error spec.workflow.steps.a.end.output"]


AGENTS = [
    ("checks: [spell]", "error", "spec.checks[0]: the tool spell does not take task"),
    ("checks: [spel]", "missing", "spec.checks[0]: no tool 'spel' is offered"),
    (
        "checks: ['when: answer.grad']",
        "error",
        "spec.checks[0]: reads answer.grad, which the output_schema of agent judge",
    ),
    (
        "tools: [look]\nchecks: [\"when: 'lok' in calls | map(attribute='name')\"]",
        "error",
        "with 'lok', which it never is",
    ),
    (
        "tools: [look]\nchecks: [\"when: calls | rejectattr('errr') | list\"]",
        "error",
        "reads errr of each of calls",
    ),
    (
        "tools: [look]\napprovals: {look: 'when: ordr > 1'}",
        "warning",
        "spec.approvals.look: asks about ordr, which",
    ),
    (
        "kind: solution\ntools: [look]\nsolution: {approve: \"when: 'pay' in names\"}",
        "error",
        "spec.solution.approve: compares names",
    ),
]


@pytest.mark.parametrize(("spec", "level", "text"), AGENTS)
def test_what_any_agent_expects(team: Path, spec: str, level: str, text: str) -> None:
    write(team, "judge", "Agent", JUDGE + spec)
    [found] = expectations(team, "judge")
    assert found.startswith(f"{level} spec.")
    assert text in found


def test_prompts_that_do_not_hold(team: Path) -> None:
    write(team, "judge", "Agent", JUDGE + "prompts: other.yaml")
    [found] = lines(check_files(team / "judge.yaml"))
    assert found.startswith("error judge.yaml spec.prompts: ")


def test_every_file_that_cannot_be_read_is_told(team: Path) -> None:
    write(team, "judge", "Agent", JUDGE + "descriptio: x\n")
    write(team, "sub", "Agent", SUB.replace("end: ", "next: a, end: "))
    found = lines(check_files(team))
    assert len(found) == 2
    assert found[0].startswith("error judge.yaml : unknown key 'descriptio' in spec")
    assert "sub.yaml spec.workflow.steps.a.next" in found[1]
    assert lines(check_files(team / "free.yaml")) == []


def test_a_module_that_cannot_be_imported(team: Path) -> None:
    (team / "tools.py").write_text("import nothing_of_that_name\n")
    found = lines(check_files(team))
    assert len(found) == 1
    assert found[0].startswith("missing team.yaml spec.tools[0]: ")
    assert "nothing_of_that_name" in found[0]


def test_automations_name_agents(team: Path) -> None:
    nightly = HEAD.format(kind="Schedule", name="nightly") + "  agent: nobody\n  task: t\n  every: 1h\n"
    (team / "nightly.yaml").write_text(nightly)
    with (team / "team.yaml").open("a") as file:
        file.write("  automations: [nightly.yaml]\n")
    assert lines(check_files(team)) == [
        "missing nightly.yaml spec.agent: nightly names the agent 'nobody'; the team has flow, judge, sub, free"
    ]


def test_as_json_and_exit_codes(team: Path) -> None:
    write(team, "flow", "Agent", FLOW.replace("judge.grade ==", "judge.why =="))
    done = CliRunner().invoke(group, ["check", str(team), "-o", "json"], standalone_mode=False)
    assert done.return_value == 0
    assert [(one["level"], one["path"]) for one in json.loads(done.output)] == [
        ("warning", "spec.workflow.steps.judge.when")
    ]
    write(team, "flow", "Agent", FLOW.replace("tools: [look]", "tools: [look, lok]"))
    done = CliRunner().invoke(group, ["check", str(team)], standalone_mode=False)
    assert done.return_value == 1
    assert "missing: 1" in done.output


def test_up_stops_at_errors(team: Path) -> None:
    write(team, "flow", "Agent", FLOW.replace("judge.grade ==", "judge.verdict =="))
    done = CliRunner().invoke(up, [str(team)], standalone_mode=False)
    assert isinstance(done.exception, CadreError)
    assert re.findall(r"(?<![\w-])\d+(?![\w-])", str(done.exception)) == ["1"]
    assert "reads judge.verdict" in done.output


def test_shipped_teams_hold_together() -> None:
    for team in Path("teams").iterdir():
        assert check_files(team) == []


CODER = """\
description: Counts.
kind: code
code: {imports: [json, xml.dom, nothing_of_it.below, "*"]}
"""


async def test_code_that_could_not_import_what_it_may(tmp_path: Path) -> None:
    if why := (await isolation_tier())[1]:
        pytest.skip(why)
    write(tmp_path, "coder", "Agent", CODER)
    write(tmp_path, "team", "Team", "agents: [coder.yaml]\n")
    for path in (tmp_path, tmp_path / "coder.yaml"):
        (told,) = lines(await asyncio.to_thread(check_files, path))
        assert holds(told, "coder.yaml spec.code.imports", "nothing_of_it.below")
