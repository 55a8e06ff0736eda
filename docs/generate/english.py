"""Measure how plain the English of the project is: `PYTHONPATH=docs python -m generate.english`, a table per room.

Counted are words that a native technical writer does not use in this sense, sentences of more than 200 characters, and
docstrings that begin with a noun clause. Code and the targets of links are left out; a cell of a table is a paragraph.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

WORDS = re.compile(
    r"\b(told|tells|nobody|anew|beside|whoever|is none|are none|goes by|at hand|to be had|of its own|the like|by itself"
    r"|whatever|likewise|thereby|wherein|hereof)\b",
    re.IGNORECASE,
)
NOUN_CLAUSE = re.compile(r"(What|Whether|How|Who|Whom|Whose|Where|Which|When|Why)\b")
LONG_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts over a room's prose; `odd` and `long` are counts of words and sentences, not shares."""

    words: int
    odd: int
    long: int
    clauses: int
    docstrings: int

    @property
    def odd_in_10_000(self) -> float:
        """Return the odd words in 10,000."""
        return 10_000 * self.odd / max(self.words, 1)


def rooms() -> dict[str, list[Path]]:
    """Return the files of each room that is measured."""
    found: dict[str, list[Path]] = {"README and CONTRIBUTING": [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]}
    found["docs"] = sorted((ROOT / "docs").glob("*.md"))
    for part in ("start", "how-to", "decisions"):
        found[f"docs/{part}"] = sorted((ROOT / "docs" / part).glob("*.md"))
    for base in (ROOT / "shared" / "cadre", ROOT / "services"):
        for folder in sorted(one for one in base.iterdir() if one.is_dir() and one.name != "__pycache__"):
            if files := sorted(folder.rglob("*.py")):
                found[str(folder.relative_to(ROOT))] = files
        if files := sorted(base.glob("*.py")):
            found[f"{base.relative_to(ROOT)}/*.py"] = files
    found["tests and tools"] = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")])
    return found


def prose_of(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield each paragraph of a file, and if it is a docstring."""
    text = file.read_text()
    if file.suffix == ".md":
        yield from ((paragraph, False) for paragraph in _paragraphs(text))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#! "), False


def _paragraphs(text: str) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", text, flags=re.M | re.S)
    # Indented code: lines behind an empty one.
    text = re.sub(r"(?<=\n\n)(?: {4}.*\n+)+", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for row in re.findall(r"^ *\|.*$", text, re.M):
        yield from re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "`x`", row))
    text = re.sub(r"^ *\|.*$", "", text, flags=re.M)
    yield from re.split(r"\n\s*\n|\n(?=\s*[-*] )", text)


def measure(files: list[Path]) -> Measured:
    """Measure the prose of files."""
    words = odd = long = clauses = docstrings = 0
    for file in files:
        for paragraph, is_docstring in prose_of(file):
            plain = " ".join(re.sub(r"`[^`]*`", "x", paragraph).split())
            words += len(plain.split())
            odd += len(WORDS.findall(plain))
            long += sum(len(sentence) > LONG_CHARACTERS for sentence in re.split(r"(?<=[.!?:])\s+", plain))
            docstrings += is_docstring
            clauses += is_docstring and NOUN_CLAUSE.match(paragraph.strip()) is not None
    return Measured(words, odd, long, clauses, docstrings)


def main() -> None:
    """Print the table."""
    print(f"{'room':34}{'words':>8}{'odd':>6}{'/10,000':>9}{'long':>6}{'clauses':>9}")
    for room, files in rooms().items():
        one = measure(files)
        counts = f"{one.words:>8}{one.odd:>6}{one.odd_in_10_000:>9.1f}{one.long:>6}"
        print(f"{room:34}{counts}{one.clauses:>5} of {one.docstrings}")


if __name__ == "__main__":
    main()
