"""An installation without the packages of an extra says so in one line, with the command that installs them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cadre.errors import CommandFailed
from cadre.service import extras

ROOT = Path(__file__).parents[2]


def without(modules: list[str], *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`cadre …` in an installation that lacks these modules."""
    code = f"import sys; sys.modules.update(dict.fromkeys({modules!r})); from cadre.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("CADRE_")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "modules", "command"),
    [
        (["up"], ["fastapi"], "pip install 'cadre-agents[up]'"),
        (["gateway"], ["fastapi"], "pip install 'cadre-agents[gateway]'"),
        (["scripted-model"], ["starlette"], "pip install 'cadre-agents[scripted-model]'"),
        (["memory"], ["qdrant_client", "semantic_text_splitter"], "pip install 'cadre-agents[memory]'"),
        (["memory", "--check"], ["semantic_text_splitter"], "pip install 'cadre-agents[memory]'"),
        (["sandbox"], ["cloudpickle"], "pip install 'cadre-agents[sandbox]'"),
    ],
)
def test_a_missing_package_is_one_line(tmp_path: Path, words: list[str], modules: list[str], command: str) -> None:
    done = without(modules, *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert f"`cadre {words[0]}`" in line
    assert line.endswith(command)


def test_the_doctor_names_the_command(tmp_path: Path) -> None:
    done = without(["fastapi", "starlette"], "doctor", folder=tmp_path)
    assert "(fastapi, starlette): pip install 'cadre-agents[up]'" in done.stdout
    assert done.stderr == ""


def test_one_command_brings_all_that_a_team_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "missing_modules", lambda service: [f"module_of_{service}"])
    with pytest.raises(CommandFailed, match=r"pip install 'cadre-agents\[memory,tracing,up\]'$"):
        extras.check_extras("up", ["gateway", "memory", "sandbox", "tracer"])


def test_the_extra_of_cadre_up_brings_its_services() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"cadre-agents[{','.join(sorted(extras.OF_UP))}]" in declared["up"]
