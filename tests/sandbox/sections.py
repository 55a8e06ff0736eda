"""Reads a text file of named pieces of code, each with what is expected of it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    name: str
    expected: tuple[str, ...]
    """The lines after `->`."""

    code: str


def read(name: str) -> list[Section]:
    """Of the file of this name, next to this one: `=== name`, `-> expected` once or more, code until the next."""
    parts = (Path(__file__).parent / name).read_text().split("\n=== ")[1:]
    assert parts, f"nothing in {name}"
    return [_section(part.split("\n# ")[0]) for part in parts]


def _section(text: str) -> Section:
    title, *lines = text.splitlines()
    expected = [line.removeprefix("-> ") for line in lines if line.startswith("-> ")]
    assert expected, f"{title}: nothing expected"
    code = "\n".join(line for line in lines if not line.startswith("-> ")).strip()
    return Section(title, tuple(expected), code)
