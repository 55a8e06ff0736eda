"""Reading team files: what is wrong is named with its file and key."""

from pathlib import Path

import pytest

from cadre.deploy.team_file import read_team
from cadre.errors import SpecError

AGENT = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: NAME}
spec: {description: does things}
"""
HEAD = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("boss", "helper"):
        (tmp_path / f"{name}.yaml").write_text(AGENT.replace("NAME", name))
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "script.yaml").write_text("rules: []\n")
    return tmp_path


def write(folder: Path, spec: str) -> Path:
    file = folder / "team.yaml"
    file.write_text(HEAD + f"spec: {spec}\n")
    return file


def test_a_whole_team(folder: Path) -> None:
    write(
        folder,
        "{agents: [boss.yaml, helper.yaml], tools: [tools.py, 'tools.py:search', my.package], script: script.yaml,"
        " demo: {agent: boss, task: do it, check: check.py}}",
    )
    team = read_team(folder)
    assert team.name == "t"
    assert team.agents == {"boss": folder / "boss.yaml", "helper": folder / "helper.yaml"}
    assert team.tools == [str(folder / "tools.py"), f"{folder / 'tools.py'}:search", "my.package"]
    assert team.script == folder / "script.yaml"
    assert team.demo is not None
    assert team.demo.check == "check.py"
    assert team.folder == folder


def test_the_agent_to_ask_leads_the_others_wherever_its_file_stands(folder: Path) -> None:
    (folder / "boss.yaml").write_text(
        AGENT.replace("NAME", "boss").replace("description", "team: [helper], description")
    )
    write(folder, "{agents: [helper.yaml, boss.yaml]}")
    assert read_team(folder).entry == "boss"
    write(folder, "{agents: [helper.yaml, boss.yaml], demo: {agent: helper, task: do it}}")
    assert read_team(folder).entry == "helper"
    write(folder, "{agents: [helper.yaml]}")
    assert read_team(folder).entry == "helper"


def test_a_demo_by_a_program(folder: Path) -> None:
    write(folder, "{agents: [boss.yaml], demo: {program: python show.py --all}}")
    demo = read_team(folder).demo
    assert demo is not None
    assert (demo.program, demo.agent, demo.task, demo.check) == ("python show.py --all", "", "", None)


def test_a_file_is_read_as_its_folder_is(folder: Path) -> None:
    file = write(folder, "{agents: [boss.yaml]}")
    assert read_team(file) == read_team(folder)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{agents: []}", "spec.agents"),
        ("{tools: []}", "spec: Object missing required field `agents`"),
        ("{agents: boss.yaml}", "spec.agents: Expected `array`, got `str`"),
        ("{agents: [boss.yaml], tool: []}", "spec.tool: "),
        ("{agents: [boss.yaml, nobody.yaml]}", "spec.agents[1]"),
        ("{agents: [boss.yaml, boss.yaml]}", "spec.agents[1]: "),
        ("{agents: [boss.yaml], tools: [other.py]}", "spec.tools[0]"),
        ("{agents: [boss.yaml], tools: ['not a module']}", "spec.tools[0]: 'not a module' is neither"),
        ("{agents: [boss.yaml], script: gone.yaml}", "spec.script"),
        (
            "{agents: [boss.yaml], demo: {agent: bos, task: x}}",
            "spec.demo.agent: 'bos'",
        ),
        ("{agents: [boss.yaml], demo: {agent: boss, task: ' '}}", "spec.demo.task: is empty"),
        (
            "{agents: [boss.yaml], demo: {agent: boss, tsk: x}}",
            "spec.demo.tsk: ",
        ),
        (
            "{agents: [boss.yaml], demo: {program: show.py, agent: boss}}",
            "spec.demo",
        ),
        ("{agents: [boss.yaml], demo: {program: show.py, task: x}}", "spec.demo"),
        ("{agents: [boss.yaml], demo: {program: show.py, check: y}}", "spec.demo"),
        ("{agents: [boss.yaml], demo: {program: 7}}", "spec.demo.program: Expected `str | null`, got `int`"),
        ("{agents: [boss.yaml], demo: {program: ' '}}", "spec.demo.program: ' ' is no command"),
        ("{agents: [boss.yaml], demo: {program: 'x \"y'}}", """spec.demo.program: 'x "y\'"""),
        (
            "{agents: [boss.yaml], demo: {agent: boss, task: x, check: ''}}",
            "spec.demo.check: '' is no command",
        ),
        ("{agents: [boss.yaml], demo: {}}", "spec.demo.agent: ''"),
    ],
)
def test_errors_name_file_and_key(folder: Path, spec: str, message: str) -> None:
    file = write(folder, spec)
    with pytest.raises(SpecError) as caught:
        read_team(folder)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_of_an_agent_file_names_that_file(folder: Path) -> None:
    (folder / "boss.yaml").write_text(AGENT.replace("NAME", "boss") + "extra: 1\n")
    write(folder, "{agents: [boss.yaml]}")
    with pytest.raises(SpecError, match=r"boss\.yaml: unknown key 'extra'"):
        read_team(folder)


def test_no_team_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"team\.yaml: cannot be read: No such file"):
        read_team(tmp_path)


def test_broken_yaml(folder: Path) -> None:
    (folder / "team.yaml").write_text("spec: {agents: [")
    with pytest.raises(SpecError, match=r"team\.yaml: not YAML: "):
        read_team(folder)


def test_an_agents_file_names_the_command_for_it(tmp_path: Path) -> None:
    file = tmp_path / "helper.yaml"
    file.write_text("apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: helper}\nspec: {description: Helps.}\n")
    with pytest.raises(SpecError, match=f"is an agent: start it with `cadre agent {file}`"):
        read_team(file)
