"""The Python files that a tools entry of a team consists of: its module, and what that imports from its own folder."""

import ast
from collections.abc import Iterator
from pathlib import Path


def source_files(entry: str, folder: Path) -> list[Path]:
    """The files of `path/to/file.py` or `package.module`, perhaps with `:NAME` behind it, and all of those in a folder
    of skills; a module's name is looked for in the folder. Installed packages are left out, and so is what can only be
    found by running the code."""
    source = entry.partition(":")[0]
    if "/" in source and Path(source).is_dir():
        return sorted(file.resolve() for file in Path(source).rglob("*") if file.is_file())
    if source.endswith(".py") or "/" in source:
        path = Path(source).resolve()
        root, found = path.parent, [path]
    else:
        root, found = folder.resolve(), list(_files_of(folder.resolve(), source))
    for file in found:  # it grows
        found += [one for one in _imported_by(file, root) if one not in found]
    return list(dict.fromkeys(found))


def _imported_by(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            for alias in node.names:
                yield from _files_of(start, f"{node.module}.{alias.name}" if node.module else alias.name)


def _files_of(root: Path, module: str) -> Iterator[Path]:
    """The files that importing this module from the root would run, its packages among them."""
    place = root
    for part in module.split("."):
        place /= part
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file
