"""Load the tools of a module, given by its name or by the path of its file, or of a folder of skills."""

import importlib
import importlib.util
import os
import sys
import traceback
from abc import abstractmethod
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import msgspec

from cadre.errors import SetupError
from cadre.options import Explaining
from cadre.spec.skill_file import SKILL_FILE, Skill, skills_in
from cadre.tools.decorator import InvalidArguments, Tool, tool
from cadre.tools.files import File

AnyTool = Tool[..., Any]

FILE_MODULE = "cadre_file_"
"""The beginning of the name of a module that was loaded by the path of its file."""

SERIAL = "SERIAL"
"""The name by which a module says that all of its tools are serial: `SERIAL = True`."""


def load_tools(target: str) -> list[AnyTool]:
    """Load the tools of `package.module` or `path/to/file.py`, or one of them by `target:function`; or the skills
    of a folder, `path/to/folder/`.

    Raises SetupError with one line when the module is not found, cannot be imported, or has no tools.
    """
    source, _, function = target.partition(":")
    if not source:
        raise SetupError(f"{target!r}: name a module, like tools.py or package.module")
    if "/" in source and Path(source).is_dir():
        return _skills(Path(source))
    module = load_module(source)
    if function:
        found = getattr(module, function, None)
        if not isinstance(found, Tool):
            what = "has no" if found is None else "has @tool missing above"
            names = ", ".join(tool.name for tool in tools_of(module)) or "none"
            raise SetupError(f"{source} {what} {function}; its tools are: {names}")
        return [one for one in tools_of(module) if one is found]
    tools = tools_of(module)
    if not tools:
        raise SetupError(f"{source} holds no tools: write @tool above a function (from cadre.tool import tool)")
    counts = Counter(tool.name for tool in tools)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise SetupError(f"{source}: two tools are named {', '.join(twice)}: rename one by @tool(name=…)")
    return tools


def _skills(folder: Path) -> list[AnyTool]:
    tools = load_skills(folder)
    if not tools:
        raise SetupError(f"{folder}: is a folder without skills: one has a {SKILL_FILE}, or folders with one")
    return tools


class HoldsTools(metaclass=Explaining):
    """An object that brings tools with it, such as an agent that Python defines."""

    @abstractmethod
    def brought_tools(self) -> list[AnyTool]:
        """Return the tools."""


def tools_of(module: ModuleType) -> list[AnyTool]:
    """Return the tools that a module defines, and those that its agents bring."""
    values = [*vars(module).values()]
    found = [value for value in values if isinstance(value, Tool)]
    for value in values:
        found += value.brought_tools() if isinstance(value, HoldsTools) else []
    tools = list({id(tool): tool for tool in found}.values())  # a tool bound to two names is one tool
    if getattr(module, SERIAL, False) is True:
        for tool in tools:
            tool.card = msgspec.structs.replace(tool.card, serial=True)
    return tools


def load_module(source: str) -> ModuleType:
    """Import `package.module` or `path/to/file.py`. Raises SetupError with one line."""
    path = Path(source)
    is_file = source.endswith(".py") or path.name != source
    try:
        return _import_file(path) if is_file else _import_module(source)
    except SetupError:
        raise
    except SyntaxError as error:
        raise SetupError(f"{error.filename}:{error.lineno}: not valid Python: {error.msg}") from error
    except (Exception, SystemExit) as error:
        # Importing runs foreign code, which may raise anything.
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SetupError(f"{_origin(error, source)}: cannot be imported: {problem}") from error


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise SetupError(f"{path}: no such file")
    # A separate name: a file called json.py must not take the place of that module.
    name = f"{FILE_MODULE}{crc32(os.fsencode(path)):08x}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SetupError(f"{path}: not a Python file: give a file that ends in .py, or the name of a module")
    _search_in(path.parent)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and structs look their module up there to resolve their hints.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    _search_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise SetupError(
            f"no module named {error.name}: start in the folder that holds it, or give the path of its file"
        ) from error


def _search_in(folder: Path) -> None:
    # As `python file.py` and `python -m module` do.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _origin(error: BaseException, source: str) -> str:
    """File and line of the statement in the module that failed, rather than of the library that raised."""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__ and "importlib" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return source


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
        """Read the skill.

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
