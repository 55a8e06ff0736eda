"""Agent Skills: folders that say what they are for, read by a tool each, named by agents."""

import re
from pathlib import Path

import pytest

from cadre.deploy.team_file import read_team
from cadre.errors import SetupError, SpecError
from cadre.local.processes import source_files
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.skill_file import read_skill
from cadre.testing import Team
from cadre.tool import File, InvalidArguments, ToolContext
from cadre.tools.loading import AnyTool, load_tools

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: writer}
spec: {description: Writes., tools: [other], skills: [skills/house-style, skills/pdf]}
"""
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: small}
spec: {agents: [writer.yaml], tools: [TOOLS]}
"""


def skill(folder: Path, name: str, text: str = "Be brief.", about: str = "") -> Path:
    place = folder / "skills" / name
    place.mkdir(parents=True)
    head = about or f"name: {name}\ndescription: How to do {name}.\nlicense: MIT"
    (place / "SKILL.md").write_text(f"---\n{head}\n---\n{text}\n")
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    style = skill(tmp_path, "house-style")
    (style / "references").mkdir()
    (style / "references" / "words.md").write_text("Say use, not utilize.")
    (style / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (style / ".hidden").write_text("no")
    skill(tmp_path, "pdf")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "writer.yaml").write_text(AGENT)
    return tmp_path


async def read(tool: AnyTool, **arguments: str) -> str | File:
    found: str | File = await tool.call(arguments, ToolContext(call_id="c", tool=tool.name))
    return found


async def test_a_skill_is_a_tool_that_reads_it(folder: Path) -> None:
    style, pdf = load_tools(f"{folder}/skills/")
    assert [style.name, pdf.name] == ["skill_house_style", "skill_pdf"]
    assert style.card.description.startswith("How to do house-style.\n")
    assert style.card.read_only
    whole = await read(style)
    assert isinstance(whole, str)
    assert "logo.png, references/words.md" in whole
    assert await read(style, path="references/words.md") == "Say use, not utilize."
    logo = await read(style, path="logo.png")
    assert isinstance(logo, File)
    assert logo.media_type == "image/png"
    (folder / "skills/pdf/SKILL.md").write_text("changed")
    assert await read(pdf) == "changed"
    assert [tool.name for tool in load_tools(f"{folder}/skills/house-style")] == ["skill_house_style"]


@pytest.mark.parametrize("path", ["../../secret.txt", "/etc/hostname", "none.md", "link", "references", "a\0b"])
async def test_nothing_else_is_read(folder: Path, path: str) -> None:
    (folder / "skills/house-style/link").symlink_to(folder / "secret.txt")
    style = load_tools(f"{folder}/skills/")[0]
    with pytest.raises((InvalidArguments, ValueError)):
        await read(style, path=path)


@pytest.mark.parametrize(
    ("name", "about", "problem"),
    [
        ("pdf", "name: other\ndescription: x", r"name: .*'pdf'"),
        ("Pdf", "name: Pdf\ndescription: x", "name: .*1 to 58"),
        ("pdf", "name: pdf", "description: .*1 to 1024"),
        ("pdf", "name: pdf\ndescription: ''", "description: .*1 to 1024"),
        ("pdf", f"name: pdf\ndescription: {'x' * 1025}", "description: .*1 to 1024"),
        ("pdf", "- name", ".*front matter"),
        ("pdf", "name: [", ".*YAML"),
    ],
)
def test_a_wrong_skill_is_refused(tmp_path: Path, name: str, about: str, problem: str) -> None:
    place = skill(tmp_path, name, about=about)
    with pytest.raises(SpecError, match=re.escape(f"{place}/SKILL.md: ") + problem):
        read_skill(place)


def test_a_folder_without_skills(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SetupError, match=re.escape(f"{tmp_path}/empty")):
        load_tools(f"{tmp_path}/empty")
    (tmp_path / "empty" / "SKILL.md").write_text("---\nname: empty")
    with pytest.raises(SetupError, match="front matter"):
        load_tools(f"{tmp_path}/empty")


def test_an_agent_names_skills_and_its_team_serves_them(folder: Path) -> None:
    agent = folder / "writer.yaml"
    assert read_agent(agent).tools == ["other", "skill_house_style", "skill_pdf"]
    assert [file.name for file in files_of_agent(agent)] == ["writer.yaml", "SKILL.md", "SKILL.md"]
    for named in ("", "skills/"):
        (folder / "team.yaml").write_text(TEAM.replace("TOOLS", named))
        assert read_team(folder).tools == [str(folder / "skills")]
    assert folder / "skills/house-style/references/words.md" in source_files(f"{folder}/skills", folder)
    agent.write_text(AGENT.replace("skills/pdf", "skills/none"))
    with pytest.raises(SpecError, match=r"spec\.skills\[1\]: there is no SKILL\.md in"):
        read_agent(agent)
    agent.write_text(AGENT.replace("[skills/house-style, skills/pdf]", "pdf"))
    with pytest.raises(SpecError, match=r"spec\.skills"):
        read_agent(agent)


async def test_a_skill_with_scripts_says_how_code_runs_them(folder: Path) -> None:
    (scripts := folder / "skills" / "pdf" / "scripts").mkdir()
    (scripts / "split.py").write_text("print(1)")
    (pdf,) = load_tools(f"{folder}/skills/pdf")
    text = str(await read(pdf))
    assert 'run_script(skill_pdf(path="…"), "argument", …)' in text
    assert await read(pdf, path="scripts/split.py") == "print(1)"


async def test_a_model_is_offered_the_skill_and_reads_it(folder: Path) -> None:
    agent = folder / "writer.yaml"
    agent.write_text(AGENT.replace("tools: [other], ", ""))
    async with Team([agent], [f"{folder}/skills/"]) as team:
        # Without a model each tool is called once.
        answer = await team.run("writer", "Write.")
    assert "Be brief." in str(answer)
