"""Define what a team file gives to all agents that it names: a section `model`, and variables for their texts.

The nearest `team.yaml` at or above an agent's file counts if it names that file; however the agent is started, it is
the same agent.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec.inspect import type_info

from cadre.errors import SpecError
from cadre.spec.durations import with_seconds
from cadre.spec.model import ModelSpec
from cadre.spec.model_file import check_keys, with_models
from cadre.spec.names import TEAM_FILE
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of

_OF_ONE_MODEL = ("price", "context")
"""Keys that an agent which names another model than its team does not take over."""

_VARIABLE = re.compile(r"\$(\$\{|\{([^}]*)\})")
"""`${NAME}`, or `$${`, which stands for `${` itself."""


class TeamDefaults(msgspec.Struct, frozen=True):
    """The defaults that a team file gives to its agents."""

    file: Path | None = None
    """The team file; None: it gives nothing."""
    model: Any = None
    """Its section `model`, as it is written."""
    variables: dict[str, str | int | float | bool] = {}


def defaults_for(agent: Path) -> TeamDefaults:
    """Return what the team that the agent's file belongs to gives it. Raises SpecError for a team file that is no
    YAML.
    """
    for folder in agent.absolute().parents:
        file = folder / TEAM_FILE
        if not file.is_file():
            continue
        data = read_yaml(file, SpecError)
        spec = data.get("spec") if isinstance(data, dict) and data.get("kind") == "Team" else None
        if not isinstance(spec, dict) or not _names(spec.get("agents"), folder, agent):
            return TeamDefaults()
        if not spec.get("model") and not spec.get("variables"):
            return TeamDefaults()
        try:
            variables = msgspec.convert(spec.get("variables") or {}, dict[str, str | int | float | bool])
        except msgspec.ValidationError as error:
            raise SpecError(
                f"{error}: write a text, number, true or false by each name",
                key="spec.variables",
                files=(file,),
            ) from error
        return TeamDefaults(file, spec.get("model"), variables)
    return TeamDefaults()


def with_team_model(data: Any, team: TeamDefaults) -> tuple[Any, list[Path]]:
    """The agent's document, its own models resolved, with the team's model where it says nothing else; and the files of
    the team's models. Raises SpecError naming the team file and what is wrong in it."""
    spec = data.get("spec") if isinstance(data, dict) else None
    own = spec.get("model", {}) if isinstance(spec, dict) else None
    if team.file is None or not team.model or not isinstance(own, dict):
        return data, []
    try:
        written = {"spec": {"model": with_variables(team.model, team.variables)}}
        resolved, files = with_models(written, team.file.parent)
        section = resolved["spec"]["model"]
        check_keys(section, "spec.model", ModelSpec.__struct_fields__)
        msgspec.convert(with_seconds(section, type_info(ModelSpec), "spec.model"), ModelSpec)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        key = f"spec.model.{misfit.place}".rstrip(".")
        raise SpecError(misfit.problem, key=key, files=(team.file,)) from error
    except SpecError as error:
        error.in_file(team.file)
        raise
    if own.get("name", section.get("name")) != section.get("name"):
        section = {key: value for key, value in section.items() if key not in _OF_ONE_MODEL}
    return {**data, "spec": {**data["spec"], "model": {**section, **own}}}, files


def _names(agents: Any, folder: Path, agent: Path) -> bool:
    entries = agents if isinstance(agents, list) else []
    return any((folder / entry).resolve() == agent.resolve() for entry in entries if isinstance(entry, str))


def with_variables(value: Any, variables: dict[str, str | int | float | bool]) -> Any:
    """The value with every `${NAME}` in its texts replaced; a text that is nothing else gets the variable as it is.

    Raises SpecError for a name that the team does not declare.
    """
    if isinstance(value, dict):
        return {key: with_variables(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [with_variables(one, variables) for one in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    whole = _VARIABLE.fullmatch(value)
    if whole is not None and whole[2] is not None:
        return _value(whole[2], variables)
    return _VARIABLE.sub(lambda found: "${" if found[2] is None else str(_value(found[2], variables)), value)


def _value(name: str, variables: dict[str, str | int | float | bool]) -> str | int | float | bool:
    if name not in variables:
        raise SpecError(
            f"${{{name}}}: the team's spec.variables has {', '.join(variables)}; write $${{{name}}} for the text itself"
        )
    return variables[name]
