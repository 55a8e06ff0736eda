"""Finds every place of a module where a mutation can be planted, and names each by what does not move with lines."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutation.operators import replacements

NOT_CODE = {"annotation", "returns", "decorator_list", "bases", "type_params"}
"""Fields of nodes in which nothing is planted: types and decorators."""

SILENT_METHODS = {"__repr__", "__str__"}
MOST_SHOWN_CHARS = 70


@dataclass(frozen=True)
class Mutation:
    """One small bug: where it is, what it changes, and the whole module with it."""

    module: str
    qualname: str
    operator: str
    occurrence: int
    """The number of this operator in its function, from 1."""
    change: str
    line: int
    file: Path
    source: str

    @property
    def id(self) -> str:
        return f"{self.module}:{self.qualname}:{self.operator}:{self.occurrence}"


@dataclass(frozen=True)
class Site:
    """A node in its place in the tree, and what an operator puts there instead."""

    qualname: str
    operator: str
    occurrence: int
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    replacement: ast.AST

    @property
    def change(self) -> str:
        return f"{_shown(self.node)} -> {_shown(self.replacement)}"


class Module:
    """A module's tree and the sites in it."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.file = name, file
        self._tree = ast.parse(file.read_text())
        self.sites = list(_numbered(_sites(self._tree, ())))

    def mutation(self, site: Site) -> Mutation:
        """The module with the site's bug in it; its tree stays as it is."""
        _put(site, site.replacement)
        try:
            source = ast.unparse(ast.fix_missing_locations(self._tree))
        finally:
            _put(site, site.node)
        return Mutation(
            module=self.name,
            qualname=site.qualname,
            operator=site.operator,
            occurrence=site.occurrence,
            change=site.change,
            line=getattr(site.node, "lineno", 0) or getattr(site.parent, "lineno", 0),
            file=self.file,
            source=source,
        )

    def id_of(self, site: Site) -> str:
        return f"{self.name}:{site.qualname}:{site.operator}:{site.occurrence}"


def _put(site: Site, node: ast.AST) -> None:
    if site.index is None:
        setattr(site.parent, site.field, node)
    else:
        getattr(site.parent, site.field)[site.index] = node


def _shown(node: ast.AST) -> str:
    """Its source on one line; of a statement with a body, its head."""
    text = ast.unparse(ast.fix_missing_locations(node))
    if isinstance(getattr(node, "body", None), list):
        text = text.strip().splitlines()[0]
    text = " ".join(text.split())
    return text if len(text) <= MOST_SHOWN_CHARS else text[: MOST_SHOWN_CHARS - 1] + "…"


def _numbered(sites: Iterator[Site]) -> Iterator[Site]:
    seen = Counter[tuple[str, str]]()
    for site in sites:
        seen[site.qualname, site.operator] += 1
        number = seen[site.qualname, site.operator]
        yield Site(**{**vars(site), "occurrence": number})


def _sites(parent: ast.AST, names: tuple[str, ...]) -> Iterator[Site]:
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, parent.name)
    for field, value in ast.iter_fields(parent):
        if field in NOT_CODE or (isinstance(parent, ast.ClassDef) and field == "keywords"):
            continue
        children = value if isinstance(value, list) else [value]
        for index, node in enumerate(children):
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            place = index if isinstance(value, list) else None
            for operator, replacement in replacements(node):
                yield Site(".".join(names) or "<module>", operator, 0, parent, field, place, node, replacement)
            if not isinstance(node, ast.Raise):
                yield from _sites(node, names)


def _is_left_alone(node: ast.AST) -> bool:
    """Docstrings, texts, assertions (they narrow types), log lines and what only type checkers read."""
    match node:
        case ast.Assert() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger))) if ast.unparse(logger).endswith("log"):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case ast.FunctionDef(name=name) if name in SILENT_METHODS:
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case _:
            return False
