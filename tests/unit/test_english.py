"""The prose of the project stays plain; `PYTHONPATH=docs python -m generate.english` prints the counts of each room."""

from pathlib import Path

import pytest

from generate.english import Measured, measure, rooms

MEASURED = {room: measure(files) for room, files in rooms().items() if room != "tests and tools"}


@pytest.mark.parametrize("room", MEASURED)
def test_a_room_s_prose_is_plain(room: str) -> None:
    one = MEASURED[room]
    assert one.odd <= 8, "PYTHONPATH=docs python -m generate.english"
    assert one.clauses <= 2
    assert one.long <= (0 if room.startswith(("docs", "README")) else 5)


def test_counts_are_of_prose_alone(tmp_path: Path) -> None:
    code = tmp_path / "a.py"
    code.write_text('"""Whether it is."""\n\nNAME = "nobody"\n# told anew\n')
    page = tmp_path / "a.md"
    page.write_text(
        "Plain `nobody`.\n\n```\ntold\n```\n\n    told\n\n| whoever | `told` |\n\nNobody " + "is here " * 30 + "now.\n"
    )
    assert measure([code]) == Measured(words=5, odd=2, long=0, clauses=1, docstrings=1)
    assert (measure([page]).odd, measure([page]).long) == (2, 1)
