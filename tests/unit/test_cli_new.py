"""The files that `cadre new` writes run as they stand, and nothing is overwritten."""

import subprocess
import sys
from pathlib import Path

import pytest

from cadre.deploy.team_file import read_team
from cadre.errors import ExitCode
from cadre.local.shipped_teams import shipped_teams
from cadre.spec.agent_file import read_agent
from harness.texts import holds
from unit.played_gateway import cadre


@pytest.mark.parametrize(
    ("kind", "name", "files"),
    [
        ("agent", "my-helper", {"my-helper.yaml", "test_my_helper.py"}),
        ("tool", "count_words", {"count_words.py", "test_count_words.py"}),
        (
            "team",
            "crew",
            {
                f"crew/{file}"
                for file in (
                    "team.yaml",
                    "lead.yaml",
                    "helper.yaml",
                    "tools.py",
                    "script.yaml",
                    "test_crew.py",
                )
            },
        ),
    ],
)
def test_a_skeleton_passes_its_own_test(
    kind: str, name: str, files: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cadre("new", kind, name)
    assert done.exit_code == 0, done.stderr
    written = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert written == files
    assert all(f"wrote {file}\n" in done.stdout for file in files)
    own = next(file for file in files if "test_" in file)
    assert f"pytest {own}\n" in done.stdout
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", own],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    if kind == "agent":
        assert read_agent(tmp_path / f"{name}.yaml").name == name
    if kind == "team":
        assert set(read_team(tmp_path / name).agents) == {"lead", "helper"}


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_helper.py").write_text("mine")
    done = cadre("new", "agent", "helper")
    assert done.exit_code == ExitCode.USAGE
    assert done.stderr.startswith("cadre: test_helper.py: ")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("test_helper.py", "mine")]


@pytest.mark.parametrize(
    ("kind", "name"), [("agent", "a b"), ("team", "../x"), ("tool", "count-words"), ("tool", "class")]
)
def test_a_name_that_is_none_is_refused(kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = cadre("new", kind, name)
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_every_shipped_team_is_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = cadre("new", "templates").stdout.splitlines()[1:]
    templates = [line.split()[0] for line in listed]
    assert {"apollo", "concierge"} <= set(templates)
    assert all(len(line.split()) > 3 for line in listed), "each says what it does"
    for template in templates:
        done = cadre("new", "team", f"my-{template}", "--template", template)
        assert done.exit_code == 0, done.stderr
        assert f"cadre up my-{template} --run" in done.stdout
        team = read_team(tmp_path / f"my-{template}")
        assert (team.name, team.demo is not None) == (f"my-{template}", True)
        written = {path: path.read_text() for path in team.folder.rglob("*.md")}
        assert [path for path, text in written.items() if f"teams/{template}" in text or "](../" in text] == []


def test_a_shipped_team_s_program_speaks_through_the_client() -> None:
    programs = [file for folder in shipped_teams().values() for file in folder.glob("*.py")]
    assert [file for file in programs if "urllib" in file.read_text()] == []


def test_an_unknown_template_is_refused_with_those_that_there_are() -> None:
    done = cadre("new", "team", "mine", "--template", "nothing")
    assert done.exit_code == 2
    assert holds(done.stderr, "'nothing'", "apollo, concierge")
