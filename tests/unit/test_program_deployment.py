"""Agents that are programs in a team: which processes, users and components run them."""

from pathlib import Path

import pytest

from cadre.adapters.local_stack import Ports
from cadre.adapters.tool_entries import is_program_file
from cadre.deploy.k8s.values import Values
from cadre.deploy.team_components import components_of, roles_of, roles_of_components
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from cadre.local.processes import Stack
from cadre.protocol.nats_users import Role
from cadre.spec.agent_file import read_agent

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: trips}
spec:
  description: Books trips.
  kind: program
  program: {PROGRAM}
"""
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: travel}
spec: {agents: [trips.yaml]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trips.yaml").write_text(AGENT.replace("{PROGRAM}", "{main: 'trips.py:main'}"))
    (tmp_path / "trips.py").write_text("import steps\n\ndef main(task): return task\n")
    (tmp_path / "steps.py").write_text("")
    (tmp_path / "team.yaml").write_text(TEAM)
    return tmp_path


def test_up_starts_its_agent_and_what_runs_it(folder: Path) -> None:
    team = read_team(folder)
    assert (team.pools, team.isolated, team.tools) == ([], [], [])
    assert team.programs == {"program-trips": folder / "trips.yaml"}
    stack = Stack(folder / "data", team, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    started = {service.name: service for service in stack.services()}
    assert list(started) == ["gateway", "program-trips", "trips"]
    program = started["program-trips"]
    assert list(program.argv)[1:] == ["-m", "cadre_tools", str(folder / "trips.yaml")]
    assert program.files is not None
    changed = {file.name for file in program.files()}
    assert changed == {"trips.yaml", "trips.py", "steps.py"}, "a change of these starts it again"


def test_each_has_a_user_and_a_component(folder: Path) -> None:
    team = read_team(folder)
    role = Role(kind="sandbox", name="program-trips")
    assert role in roles_of(team)
    components = components_of(team, Values())
    assert role in roles_of_components(team, components)
    (program,) = [one for one in components if one.role == "sandbox"]
    assert (program.name, program.arguments[0]) == ("program-trips", "tools")
    assert program.arguments[1].endswith("/trips.yaml")
    assert program.files is not None
    assert {"trips.yaml", "trips.py"} <= program.files.contents.keys()


def test_its_file_is_told_from_others(folder: Path) -> None:
    (folder / "plain.yaml").write_text(AGENT.replace("  kind: program\n  program: {PROGRAM}\n", ""))
    assert is_program_file(str(folder / "trips.yaml"))
    assert not is_program_file(str(folder / "plain.yaml"))
    assert not is_program_file(str(folder / "team.yaml"))


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("{main: 1}", "program.main"),
        ("{main: trips.py}", "program.main"),
        ("{main: 'trips.py:'}", "program.main"),
        ("{main: 'trips.py:main', hold: 0s}", "program.hold"),
        ("{main: 'trips.py:main', processes: 0}", "program.processes"),
    ],
)
def test_a_section_that_cannot_hold_is_refused(folder: Path, section: str, key: str) -> None:
    (folder / "trips.yaml").write_text(AGENT.replace("{PROGRAM}", section))
    with pytest.raises(SpecError) as refused:
        read_agent(folder / "trips.yaml")
    assert key in str(refused.value)
