"""Agent Skills: folders with a SKILL.md, whose front matter says what the skill is and when to use it."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cadre.errors import SpecError

SKILL_FILE = "SKILL.md"
TOOL_PREFIX = "skill_"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME_CHARS = 58
"""The specification of Agent Skills has 64; the name of the tool that reads it begins with `skill_`."""
_MAX_DESCRIPTION_CHARS = 1024
_MARK = "---"


class Skill(NamedTuple):
    """A checked skill."""

    name: str
    description: str
    folder: Path

    @property
    def tool(self) -> str:
        """The name of the tool that reads it."""
        return TOOL_PREFIX + self.name.replace("-", "_")


def read_skill(folder: Path) -> Skill:
    """Read what the skill in the folder says of itself. Raises SpecError with the file and what is wrong."""
    file = folder / SKILL_FILE
    try:
        lines = file.read_text("utf-8").splitlines()
        end = lines.index(_MARK, 1) if lines[:1] == [_MARK] else 0
        about: Any = yaml.safe_load("\n".join(lines[1:end])) if end else None
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", files=(file,)) from error
    except (ValueError, yaml.YAMLError) as error:
        raise SpecError(f"its front matter is not YAML between two lines {_MARK}", files=(file,)) from error
    if not isinstance(about, dict):
        raise SpecError(f"begin with front matter: name and description between two lines {_MARK}", files=(file,))
    name, description = about.get("name"), about.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARS:
        raise SpecError(
            f"use 1 to {_MAX_NAME_CHARS} of the letters a-z, digits and single '-' in between",
            key="name",
            files=(file,),
        )
    # As it is named, links and all: a mounted folder may be exchanged for another one.
    place = Path(os.path.abspath(folder))
    if name != place.name:
        raise SpecError(f"must be the folder's name, {place.name!r}", key="name", files=(file,))
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _MAX_DESCRIPTION_CHARS:
        raise SpecError(f"write 1 to {_MAX_DESCRIPTION_CHARS} characters", key="description", files=(file,))
    return Skill(name, " ".join(description.split()), place)


def skills_in(folder: Path) -> list[Skill]:
    """The skill that the folder is, or the skills in it, by name. Raises SpecError."""
    if (folder / SKILL_FILE).is_file():
        return [read_skill(folder)]
    return [read_skill(file.parent) for file in sorted(folder.glob(f"*/{SKILL_FILE}"))]


def with_skills(data: Any, folder: Path) -> tuple[Any, list[Skill]]:
    """Return an agent's document with the tools that read its skills in place of the skills, and these.

    Raises SpecError.
    """
    spec = data.get("spec") if isinstance(data, dict) else None
    if not isinstance(spec, dict) or "skills" not in spec:
        return data, []
    named = spec["skills"]
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise SpecError("write a list of folders", key="spec.skills")
    skills: list[Skill] = []
    for index, one in enumerate(named):
        found = skills_in(folder / one)
        if not found:
            raise SpecError(f"there is no {SKILL_FILE} in {folder / one}", key=f"spec.skills[{index}]")
        skills += found
    tools = spec.get("tools") or []
    others = [skill.tool for skill in skills if skill.tool not in tools] if isinstance(tools, list) else []
    rest = {key: value for key, value in spec.items() if key != "skills"}
    return {**data, "spec": {**rest, "tools": [*tools, *dict.fromkeys(others)]}}, skills
