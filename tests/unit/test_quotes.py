"""Tests assert codes, names, numbers and commands: no sentence of the product stands in them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

WORDS = 4
"""Plain words in a row that make a sentence."""

PRODUCT = [*Path("shared").rglob("*.py"), *Path("services").rglob("*.py")]


def phrases(text: str) -> Iterator[str]:
    """Yield the phrases of WORDS plain words in a text."""
    for part in re.split(r"[^A-Za-z'’ ,;]+", text):
        words = re.findall(r"[A-Za-z'’]+", part)
        for first in range(len(words) - WORDS + 1):
            yield " ".join(words[first : first + WORDS]).lower()


def text_of(node: ast.AST) -> str | None:
    """Return the text of a literal, with a gap for each value in it; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in values)
        case _:
            return None


def literals(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the literals of texts in a tree, but for docstrings and parts of other literals."""
    if text_of(node) is not None:
        assert isinstance(node, ast.expr)
        yield node
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def asserted(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the literals of texts that tests compare with: in `assert`, `pytest.raises` and the values of a test."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test):
                yield from literals(test)
            case ast.Call(func=ast.Attribute(attr="raises" | "parametrize")):
                yield from literals(node)
            case _:
                pass


def quotes() -> Iterator[str]:
    """Yield each asserted text that quotes a sentence of the product, with its place."""
    said = {
        phrase
        for file in PRODUCT
        for literal in literals(ast.parse(file.read_text()))
        for phrase in phrases(text_of(literal) or "")
    }
    for file in sorted([*Path("tests").rglob("*.py"), *Path("tools").rglob("*.py")]):
        found = {(one.lineno, one.col_offset): one for one in asserted(ast.parse(file.read_text()))}
        for one in found.values():
            if not said.isdisjoint(phrases(text_of(one) or "")):
                yield f"{file}:{one.lineno}: {ast.unparse(one)[:100]}"


def test_no_test_quotes_a_sentence_of_the_product() -> None:
    found = list(quotes())
    assert not found, "assert a code, or what the text must hold (harness.texts.holds):\n" + "\n".join(found)
