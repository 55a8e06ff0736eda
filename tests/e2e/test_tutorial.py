"""The tutorial is played word for word: its files, its commands, its output."""

from pathlib import Path

import pytest

from harness.played_page import blocks_of, commands_of, played_page, shows

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tutorial_does_what_it_shows(tmp_path: Path) -> None:
    with played_page(tmp_path) as page:
        assert page.play(DOCS / "start" / "tutorial.md") >= 10


@pytest.mark.parametrize(
    ("printed", "shown", "found"),
    [
        ("a b\nc\n", ["a b", "c"], True),
        ("a b\nx\nc\n", ["a b", "c"], False),
        ("a b\nx\nc\n", ["a b", "…", "c"], True),
        ("12:30 a   b\n", ["… a b"], True),
        ("12:30 a   c\n", ["… a b"], False),
        ("", ["a"], False),
    ],
)
def test_output_is_compared_line_by_line(printed: str, shown: list[str], found: bool) -> None:
    assert shows(printed, shown) is found


def test_blocks_and_commands_are_read_from_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('Text.\n\n```python title="a.py"\nx = 1\n```\n\n```console\n$ one\nout\n$ two\n```\n')
    file, console = blocks_of(page)
    assert (file.kind, file.title, file.text) == ("python", "a.py", "x = 1\n")
    assert commands_of(console.text) == [("one", ["out"]), ("two", [])]
