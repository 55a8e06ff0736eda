"""Offer Agent Skills as tools: the model sees what a skill is for, and calls its tool to read it."""

from pathlib import Path
from typing import Any

from cadre.spec.skill_file import SKILL_FILE, Skill, skills_in
from cadre.tools.decorator import InvalidArguments, Tool, tool
from cadre.tools.files import File

_MAX_LISTED = 200
_TIMEOUT_SECONDS = 60.0
_HOW_TO_RUN = (
    "If you write Python code, it can run a Python script of this skill:"
    ' run_script({tool}(path="…"), "argument", …) prints what the script prints.'
)


def load_skills(folder: Path) -> list[Tool[..., Any]]:
    """A tool for the skill that the folder is, or for each skill in it. Raises SpecError."""
    return [_tool(skill) for skill in skills_in(folder)]


def _tool(skill: Skill) -> Tool[..., Any]:
    # The file is read at each call: a skill that was changed is read as it is.
    def read(path: str = SKILL_FILE) -> str | File:
        """Reads the skill.

        Args:
            path: A file of the skill, as its instructions or the list below them name it.
        """
        return _content(skill.folder, path, skill.tool)

    description = (
        f"{skill.description}\nThis is a skill: call it without arguments and follow what you read there before you"
        " do work of this kind."
    )
    return tool(
        name=skill.tool,
        description=description,
        read_only=True,
        timeout=_TIMEOUT_SECONDS,
        labels={"skill": skill.name},
    )(read)


def _content(folder: Path, path: str, name: str) -> str | File:
    """A text as it is, anything else as a file. Raises InvalidArguments for a path that is not in the skill."""
    folder = folder.resolve()
    file = (folder / path).resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        raise InvalidArguments(f"the skill has no file {path!r}; it has {', '.join(_files(folder))}")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        return File.from_path(file)
    others = [one for one in _files(folder) if one != SKILL_FILE]
    if file != folder / SKILL_FILE or not others:
        return text
    listed = f"{text.rstrip()}\n\nFiles of this skill: {', '.join(others)}"
    if not any(one.endswith(".py") for one in others):
        return listed
    return f"{listed}\n{_HOW_TO_RUN.format(tool=name)}"


def _files(folder: Path) -> list[str]:
    files = (file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file())
    shown = [file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts)]
    return shown[:_MAX_LISTED]
