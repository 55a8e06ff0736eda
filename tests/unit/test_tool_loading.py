"""Finding the tools of a file or module; what cannot be loaded is one clear line."""

import sys
from pathlib import Path

import pytest

from cadre.errors import SetupError
from cadre.tool import ToolContext
from cadre.tools.loading import load_tools

TWO_TOOLS = '''
from __future__ import annotations
from dataclasses import dataclass
from cadre.tool import tool
import neighbour

@dataclass
class Place:
    city: str

@tool
def one(place: Place) -> str:
    """One."""
    return neighbour.WORD

@tool
def two() -> str:
    """Two."""
    return "2"

def plain() -> None: ...
again = one
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "neighbour.py").write_text("WORD = 'next door'")
    (tmp_path / "two_tools.py").write_text(TWO_TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path


async def test_tools_are_found_by_file_module_and_name(folder: Path) -> None:
    for target in (str(folder / "two_tools.py"), "two_tools.py", "two_tools"):
        tools = load_tools(target)
        assert [each.name for each in tools] == ["one", "two"]
        assert await tools[0].call({"place": {"city": "Ulm"}}, ToolContext()) == "next door"
    assert [each.name for each in load_tools("two_tools.py:two")] == ["two"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("x = 1", "bad.py", "bad.py holds no tools: write @tool"),
        ("x = 1\nimport no_such_thing", "bad.py", "bad.py:2: cannot be imported: ModuleNotFoundError"),
        (
            "import json\n\njson.loads('{')",
            "bad_module",
            "bad_module.py:3: cannot be imported: JSONDecodeError",
        ),
        ("x = 1\ndef f(:", "bad.py", "bad.py:2: not valid Python: invalid syntax"),
        ("raise SystemExit('bye')", "bad.py", "bad.py:1: cannot be imported: SystemExit: bye"),
        ("from cadre.tool import tool\n@tool\ndef f(): ...", "bad.py", "bad.py:2: tool f: write a docstring"),
        ("x = 1", "missing.py", "missing.py: no such file"),
        ("x = 1", "missing_module", "missing_module"),
        ("x = 1", "missing_package.tools", "no module named missing_package"),
        (
            "x = 1",
            "two_tools.py:plain",
            "two_tools.py has @tool missing above plain; its tools are: one, two",
        ),
        ("x = 1", "two_tools.py:three", "two_tools.py has no three; its tools are: one, two"),
        ("x = 1", ":x", "name a module"),
    ],
)
def test_what_cannot_be_loaded_is_one_clear_line(folder: Path, source: str, target: str, message: str) -> None:
    (folder / "bad.py").write_text(source)
    (folder / "bad_module.py").write_text(source)
    with pytest.raises(SetupError) as raised:
        load_tools(target)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_two_tools_of_one_name_are_refused(folder: Path) -> None:
    (folder / "twice.py").write_text(
        "from cadre.tool import tool\n"
        "a = tool(name='same', description='A.')(lambda: 1)\n"
        "b = tool(name='same', description='B.')(lambda: 2)\n"
    )
    with pytest.raises(SetupError, match=r"twice\.py.*\bsame\b"):
        load_tools("twice.py")
