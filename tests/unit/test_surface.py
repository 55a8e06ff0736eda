"""The Python surface: `docs/python.md` lists what each public module has, and what is shown imports nothing else."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()

SECTIONS = dict(re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
"""The text of each public module's section."""

SHOWN = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.ipynb")),
    *sorted((ROOT / "teams").rglob("*.py")),
    # A kind of agents builds on modules of the engine, a door on modules of the gateway; their page says which.
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "architecture.md"),
    ROOT / "README.md",
]


def documented(section: str) -> list[str]:
    cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def code_of(file: Path) -> str:
    text = file.read_text()
    if file.suffix == ".py":
        return text
    if file.suffix == ".ipynb":
        cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return "\n".join("".join(source) for source in cells)
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", text, re.M | re.S)
    return "\n".join(line[len(indent) :] for indent, block in blocks for line in block.splitlines())


@pytest.mark.parametrize("module", SECTIONS)
def test_the_page_lists_what_a_module_has(module: str) -> None:
    public = importlib.import_module(module)
    assert sorted(documented(SECTIONS[module])) == sorted(public.__all__)
    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def test_there_are_public_modules() -> None:
    assert {"cadre", "cadre.tool", "cadre.client", "cadre.protocol", "cadre.testing"} <= SECTIONS.keys()


def test_what_is_shown_imports_the_public_names_alone() -> None:
    """`cadre_program` is on the path of programs alone, and has no page here: docs/members.md names all of it."""
    imports = [
        (file.relative_to(ROOT).as_posix(), found[1], found[2])
        for file in SHOWN
        for found in re.finditer(r"^from (cadre(?!_program\b)[\w.]*) import (.+)$", code_of(file), re.M)
    ]
    private = [
        (file, module, name)
        for file, module, names in imports
        for name in names.split(", ")
        if module not in SECTIONS or name not in documented(SECTIONS[module])
    ]
    assert len(imports) > 5
    assert private == []
    assert [file for file in SHOWN if re.search(r"^import cadre", code_of(file), re.M)] == []
