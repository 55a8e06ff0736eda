"""The rooms of the code: every package by its path, with the first line of its docstring."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY, SERVICES = ROOT / "shared" / "cadre", ROOT / "services"


def library() -> str:
    """The rooms and root modules of the library, in the order of the import layers: each may import what is below."""
    rows = [row for room in _layers() for row in _rows(LIBRARY / room, LIBRARY)]
    return _table(rows)


def services() -> str:
    rows = [row for service in sorted(SERVICES.glob("cadre_*")) for row in _rows(service, SERVICES)]
    return _table(rows)


def _layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    return [room for layer in layers for room in re.split(r" [|:] ", layer)]


def _rows(room: Path, root: Path) -> list[tuple[str, str]]:
    """A module, or a package and all packages in it."""
    module = room.with_suffix(".py")
    if module.is_file():
        return [(module.relative_to(root).as_posix(), _first_line(module))]
    packages = sorted(file.parent for file in room.rglob("__init__.py"))
    return [(f"{one.relative_to(root).as_posix()}/", _first_line(one / "__init__.py")) for one in packages]


def _first_line(module: Path) -> str:
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| room | what is in it |", "|---|---|", *(f"| `{path}` | {line} |" for path, line in rows)])
