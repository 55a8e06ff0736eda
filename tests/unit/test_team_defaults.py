"""Tests of what a team file gives to its agents: a model, and variables for their texts."""

from pathlib import Path

import pytest

from cadre.deploy.k8s.values import Values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.model import Price

TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: museum}
spec:
  agents: [guide.yaml, below/writer.yaml]
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: NAME}
spec:
  description: Works.
"""


def team(folder: Path, given: str, own: str = "") -> Path:
    """A team of two, the guide with its own lines; returns the guide's file."""
    (folder / "below").mkdir(exist_ok=True)
    (folder / "team.yaml").write_text(TEAM + given)
    (folder / "guide.yaml").write_text(AGENT.replace("NAME", "guide") + own)
    (folder / "below" / "writer.yaml").write_text(AGENT.replace("NAME", "writer"))
    return folder / "guide.yaml"


MODEL = '  model: {url: "http://gpu:8000/v1", name: qwen, temperature: 0, price: {input: 1, output: 2}}\n'


def test_an_agents_own_keys_go_before_the_teams(tmp_path: Path) -> None:
    guide = read_agent(team(tmp_path, MODEL, "  model: {temperature: 1, seed: 4}\n")).model
    assert (guide.url, guide.name, guide.temperature, guide.seed) == ("http://gpu:8000/v1", "qwen", 1, 4)
    assert guide.price == Price(input=1, output=2)
    writer = read_agent(tmp_path / "below" / "writer.yaml").model
    assert (writer.name, writer.temperature, writer.seed) == ("qwen", 0, None)


def test_another_model_is_not_taken_for_the_teams(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("small", "large"):
        (tmp_path / "models" / f"{name}.yaml").write_text(
            f"apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {{name: {name}}}\nspec: {{max_tokens: {len(name)}}}\n"
        )
    guide = read_agent(team(tmp_path, MODEL, "  model: small\n")).model
    assert (guide.name, guide.url, guide.price, guide.max_tokens) == ("small", "http://gpu:8000/v1", None, 5)
    file = team(tmp_path, "  model: {use: large, seed: 1}\n")
    found = read_agent(file).model
    assert (found.name, found.seed, found.max_tokens) == ("large", 1, 5)
    assert files_of_agent(file) == [file, tmp_path / "models" / "large.yaml", tmp_path / "team.yaml"]


def test_variables_stand_in_texts(tmp_path: Path) -> None:
    own = "  instructions: Welcome to ${museum}, not to $${museum}.\n  limits: {max_steps: '${steps}'}\n"
    file = team(tmp_path, "  variables: {museum: the Moon, steps: 7}\n  model: {name: '${museum}'}\n", own)
    spec = read_agent(file)
    assert spec.instructions == "Welcome to the Moon, not to ${museum}."
    assert (spec.limits.max_steps, spec.model.name) == (7, "the Moon")
    assert [one.name for one in map(read_agent, read_team(tmp_path).agents.values())] == ["guide", "writer"]


def test_a_file_that_no_team_names_is_read_as_it_stands(tmp_path: Path) -> None:
    team(tmp_path, MODEL + "  variables: {a: b}\n")
    alone = tmp_path / "alone.yaml"
    alone.write_text(AGENT.replace("NAME", "alone") + "  instructions: Costs ${HOME}.\n")
    assert read_agent(alone).instructions == "Costs ${HOME}."
    assert read_agent(alone).model.name == ""
    assert files_of_agent(alone) == [alone]


@pytest.mark.parametrize(
    ("given", "own", "said"),
    [
        ("  model: {nam: x}\n", "", "team.yaml: unknown key 'nam' in spec.model"),
        ("  model: {seed: x}\n", "", "team.yaml: spec.model.seed: Expected"),
        ("  model: {timeout: soon}\n", "", "team.yaml: spec.model.timeout: 'soon'"),
        ("  model: {use: gone}\n", "", "'gone'"),
        (
            "  variables: {a: 1}\n",
            "  instructions: '${b}'\n",
            "guide.yaml: ${b}: the team's spec.variables has a; write $${b}",
        ),
        ("  variables: {a: [1]}\n", "", "team.yaml: spec.variables: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, given: str, own: str, said: str) -> None:
    file = team(tmp_path, given, own)
    with pytest.raises(SpecError) as refused:
        read_agent(file)
    assert said in str(refused.value)


def test_a_team_that_would_not_reach_its_agents_is_refused(tmp_path: Path) -> None:
    team(tmp_path, MODEL)
    other = (tmp_path / "team.yaml").rename(tmp_path / "staging.yaml")
    with pytest.raises(SpecError, match=r"spec\.model and spec\.variables"):
        read_team(other)


def test_manifests_carry_the_team_with_each_agent(tmp_path: Path) -> None:
    team(tmp_path, MODEL)
    components = {one.name: one for one in components_of(read_team(tmp_path), Values()) if one.role == "agent"}
    for name, file in (("guide", "guide.yaml"), ("writer", "below/writer.yaml")):
        found = components[name]
        assert found.files is not None
        assert set(found.files.contents) == {file, "team.yaml"}
        assert found.model_urls == ["http://gpu:8000/v1"]
        assert found.arguments[-1].endswith(file)
