"""The agents, tools and schedules of a Python module as the files of a team, which everything else reads."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cadre.authoring import AgentDefinition, Schedule, everybody
from cadre.errors import SetupError, SpecError
from cadre.spec.kinds import unfolded
from cadre.spec.names import TEAM_FILE
from cadre.tools.loading import load_module, tools_of

_TIMEOUT_SECONDS = 60.0
_SCHEDULES = "schedules.yaml"


class _TeamFiles(msgspec.Struct, frozen=True):
    """The files of a team by their names, or the reason why they are missing."""

    files: dict[str, str] = {}
    problem: str = ""


def is_module(path: Path) -> bool:
    """Return whether the path is a Python file that may define a team."""
    return path.suffix == ".py"


def write_team(module: Path, folder: Path) -> Path:
    """Write what the module defines as the files of a team into the folder, which is its own; return the team file.

    The module is imported in another process. Files that stay the same are not touched. Raises SpecError.
    """
    command = [sys.executable, "-m", "cadre.local.python_team", str(module)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_TIMEOUT_SECONDS, check=False)
        written = msgspec.json.decode(done.stdout, type=_TeamFiles)
    except subprocess.TimeoutExpired as error:
        raise SpecError(
            f"could not be imported within {_TIMEOUT_SECONDS:g} s: what it does when it is imported belongs under"
            " `if __name__ == '__main__':`",
            files=(module,),
        ) from error
    except msgspec.DecodeError as error:
        raise SpecError(f"could not be imported: its process ended with {done.returncode}", files=(module,)) from error
    if written.problem:
        raise SpecError(written.problem, files=(module,))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written.files.items():
        file = folder / name
        if not file.is_file() or file.read_text() != text:
            file.write_text(text)
    for file in folder.iterdir():
        if file.name not in written.files:
            file.unlink()
    return folder / TEAM_FILE


def _files(path: Path) -> dict[str, str]:
    """Return the files of the team that the module defines. Raises SetupError."""
    module = load_module(str(path))
    values = [*vars(module).values()]
    agents = everybody(dict.fromkeys(one for one in values if isinstance(one, AgentDefinition)))
    schedules = list(dict.fromkeys(one for one in values if isinstance(one, Schedule)))
    if not agents:
        raise SpecError('defines no agent: write agent = Agent("name", instructions="…")', files=(path,))
    for name, agent in agents.items():
        if agent.model is not None:
            raise SpecError(
                "its model is a test double: name a model, or none for that of CADRE_MODEL",
                agent=name,
                files=(path,),
            )
    spec: dict[str, Any] = {"agents": [f"{name}.yaml" for name in agents]}
    if tools_of(module):
        spec["tools"] = [str(path.resolve())]
    if schedules:
        spec["automations"] = [_SCHEDULES]
    written = {f"{name}.yaml": _yaml(_agent(agent)) for name, agent in agents.items()}
    team_name = re.sub(r"[^a-zA-Z0-9_-]", "-", path.stem)[:64]
    written[TEAM_FILE] = _yaml(_document("Team", {"name": team_name}, spec))
    if schedules:
        written[_SCHEDULES] = "---\n".join(
            _yaml(_document("Schedule", {"name": one.name}, one.keys)) for one in schedules
        )
    return written


def _agent(agent: AgentDefinition) -> dict[str, Any]:
    fields = unfolded(agent.name, msgspec.to_builtins(agent.spec))
    metadata: dict[str, Any] = {key: fields.pop(key) for key in ("name", "labels") if key in fields}
    return _document("Agent", metadata, fields)


def _document(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "cadre.dev/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _main(path: Path) -> _TeamFiles:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return _TeamFiles(_files(path))
    except SetupError as error:
        is_of_module = [*map(Path, error.files)] == [path]
        return _TeamFiles(problem=error.explanation if is_of_module else str(error))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_main(Path(sys.argv[1]))))
